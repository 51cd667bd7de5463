"""The schema and its page: for everybody to read, with nothing of any tenant in them.

The page comes from files of ours alone and runs no script and no style that is written into it, so that the policy of
settings.SECURE_CSP, which allows neither, holds for it as for every other page.
"""

from collections.abc import Callable
from functools import cache, wraps
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer

from bookings.api import problems

CONTENT_TYPE = "application/vnd.oai.openapi+json"
METHODS = ("GET", "HEAD")
View = Callable[[HttpRequest], HttpResponse]


def _read_only(view: View) -> View:
    @wraps(view)
    def checked(request: HttpRequest) -> HttpResponse:
        if request.method not in METHODS:
            allow = {"Allow": ", ".join(METHODS)}
            return problems.answer(HTTPStatus.METHOD_NOT_ALLOWED, headers=allow)
        if request.META.get("QUERY_STRING"):
            return problems.answer(HTTPStatus.BAD_REQUEST, "invalid", "there are no parameters")
        return view(request)

    return checked


@_read_only
def schema(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(document(), content_type=CONTENT_TYPE)


@_read_only
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "bookings/docs.html")


@cache
def document() -> bytes:
    """Made once in a process: it depends on nothing but the code."""
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]
    found = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return bytes(OpenApiJsonRenderer().render(found))
