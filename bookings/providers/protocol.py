"""What the payment and the ticket step need of a provider, whoever it is.

Every method makes at most one wire request and returns, never raises, exactly one outcome of
`ledger.outcomes`; it ends within `call.timeout_seconds`. One conformance suite runs against every
implementation.
"""

from typing import Protocol

from ledger import outcomes, saga


class Payments(Protocol):
    """Money taken and given back, each under the operation id as the provider's idempotency key."""

    def capture(self, call: saga.Call) -> outcomes.Outcome: ...

    def refund(self, call: saga.Call) -> outcomes.Outcome: ...

    def find(self, call: saga.Call) -> outcomes.Sighted:
        """Ask about the operation without effect; tells a capture from a refund by its arguments."""

    def bury(self, call: saga.Call) -> outcomes.Outcome:
        """Have the operation id refused from now on: Refused. It has happened already: Confirmed, as by `find`."""


class Tickets(Protocol):
    """Tickets issued, likewise."""

    def issue(self, call: saga.Call) -> outcomes.Outcome: ...

    def find(self, call: saga.Call) -> outcomes.Sighted: ...

    def bury(self, call: saga.Call) -> outcomes.Outcome: ...
