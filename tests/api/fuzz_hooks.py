"""What schemathesis is told of the API beside its schema, so that a valid request is an accepted one: which days can be
booked, and that an integer is written as one. To JSON Schema 2.0 is an integer; to us it is not, and no schema can say so.
"""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import schemathesis
from hypothesis import strategies as st

DAYS = 900  # ahead, within the horizon
TODAY = datetime.now(UTC).date()
TAGS = ("If-Match", "If-None-Match")

schemathesis.openapi.format(
    "date",
    st.dates(TODAY + timedelta(days=2), TODAY + timedelta(days=DAYS)).map(date.isoformat),
)
schemathesis.openapi.format(
    "date-time",
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(  # noqa: DTZ001  the Z is added
        lambda at: f"{at.isoformat(timespec='seconds')}Z"
    ),
)


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    # What is set here is judged anew: a body that was left out would count as a wrong one.
    if isinstance(case.body, dict | list):
        case.body = _written_as_integers(case.body)
    for name in TAGS if case.meta and case.meta.generation.mode.is_positive else ():
        if str(case.headers.get(name, "")).isdecimal():
            case.headers[name] = "*"  # it takes the version of a booking it has seen for its tag


def _written_as_integers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _written_as_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_written_as_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
