"""The view that `manage.py bench submit` compares the submission with: the same authentication, parser and renderer, and
one INSERT. Routed only while AMENDS_BENCH_BARE is set, which `manage.py check` refuses: its table is the benchmark's.
"""

import json
import os
from http import HTTPStatus
from typing import ClassVar

from django.urls import URLPattern, path
from rest_framework.request import Request
from rest_framework.response import Response

from bookings.api import auth, parsers
from bookings.api.resource import Resource
from bookings.models import Scope
from ledger import sql

VARIABLE = "AMENDS_BENCH_BARE"
PATH = "/bench/bare"
TABLE = "bench_bare"
CREATE = f"""
CREATE TABLE {TABLE} (
    id uuid PRIMARY KEY DEFAULT uuidv7(), tenant_id uuid NOT NULL, body jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now());
GRANT INSERT, SELECT ON {TABLE} TO amends_api
"""
DROP = f"DROP TABLE IF EXISTS {TABLE}"
INSERT = f"INSERT INTO {TABLE} (tenant_id, body) VALUES (%s, %s::jsonb) RETURNING id"  # noqa: S608  a constant


class Bare(Resource):
    http_method_names = ["post"]
    scopes: ClassVar = {"POST": Scope.WRITE.value}

    def post(self, request: Request) -> Response:
        """Keep a body; promise nothing about it."""
        parsers.require_json(request)
        made = sql.fetch(INSERT, [auth.tenant_of(request).id, json.dumps(request.data)])
        return Response({"id": str(made[0][0])}, status=HTTPStatus.ACCEPTED)


def is_routed() -> bool:
    return VARIABLE in os.environ


def urls() -> list[URLPattern]:
    """What config.urls adds: nothing, unless this process serves a benchmark."""
    return [path(PATH.removeprefix("/"), Bare.as_view(), name="bench-bare")] if is_routed() else []
