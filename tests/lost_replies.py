"""Connections that die around one statement: its commit goes through and the reply is lost, or it never arrives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from django.db import OperationalError, connection

from tests import psql

When = Literal["before", "after"]


@contextmanager
def dying(
    marker: str, when: When, nth: int = 1, *, meanwhile: Callable[[], object] = lambda: None
) -> Iterator[list[When]]:
    """The server ends this thread's session around the nth statement that contains `marker`; yields those it ended.
    `meanwhile` happens before the statement is repeated.
    """
    seen = 0
    ended: list[When] = []

    def wrapper(
        execute: Callable[..., Any], statement: str, params: Any, many: bool, context: Any
    ) -> Any:
        nonlocal seen
        seen += marker in statement
        if marker not in statement or seen != nth:
            return execute(statement, params, many, context)
        ended.append(when)
        if when == "before":
            psql.cut([psql.pid()])
            return execute(statement, params, many, context)
        execute(statement, params, many, context)
        psql.cut([psql.pid()])
        meanwhile()
        raise OperationalError("the connection is gone; the statement had committed")

    with connection.execute_wrapper(wrapper):
        yield ended
