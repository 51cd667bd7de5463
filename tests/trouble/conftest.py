"""A database and a broker in trouble, over the same provider and hotel as the cases; nothing waits between attempts."""

from tests.acceptance.conftest import live
from tests.cases.conftest import stage
from tests.providers.conftest import sandbox, session_sandbox

__all__ = ["live", "sandbox", "session_sandbox", "stage"]
