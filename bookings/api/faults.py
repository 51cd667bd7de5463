"""An error of the API and the places in a request that it names. Imported by what DRF's settings name (parsers,
authentication) while `rest_framework.views` is still being imported, so it knows nothing of views; `problems` renders.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from rest_framework import exceptions

FAULTS_MAX = 20
TEXT_MAX = 200
Fault = dict[str, str]


class Problem(exceptions.APIException):
    """An error with a status of its own. `kind` names its type, `faults` the places that are wrong, `members` what else the
    document says.
    """

    def __init__(
        self, status: HTTPStatus, kind: str, detail: str, faults: Sequence[Fault] = (),
        *, retry_after: int | None = None, members: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail, kind)
        self.status_code = status
        self.kind = kind
        self.faults = list(faults)
        self.wait = retry_after
        self.members = dict(members or {})


def fault(pointer: str, code: str, detail: str) -> Fault:
    return {"pointer": pointer[:TEXT_MAX], "code": code, "detail": detail[:TEXT_MAX]}


def invalid(pointer: str, code: str, detail: str) -> Problem:
    """400 with one place named; `pointer` is a JSON pointer, a header's name, or a parameter's after a question mark."""
    return Problem(HTTPStatus.BAD_REQUEST, "invalid", detail, [fault(pointer, code, detail)])


def escape(name: str) -> str:
    """One member name as a reference token of a JSON pointer, in characters that any log and terminal takes."""
    printable = "".join(c if c.isprintable() else "\ufffd" for c in name)
    return printable.replace("~", "~0").replace("/", "~1")
