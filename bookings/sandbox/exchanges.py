"""One request on its way through the sandbox, and the ways to end it that every action is made
of.

Invariant: nothing leaves, and no line is dropped, before what was done about the request is
committed.
"""

from dataclasses import dataclass

from bookings.sandbox import processor, state, wire


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request under way: what was asked, which row of the books it has, where the answer
    goes.
    """

    operation: processor.Operation
    number: int
    state: state.State
    line: wire.Wire

    def perform(self, *, is_keyed: bool = True) -> processor.Reply:
        """Do it honestly, save for the key where that is not to be honoured."""
        honours = is_keyed and self.state.manners.honours_keys
        return processor.perform(self.state.books, self.operation, is_keyed=honours)

    def settle(self, reply: processor.Reply) -> processor.Reply:
        """Make this the answer for good, unless there is one already."""
        if self.operation.kind not in processor.EFFECTS:
            return reply
        if self.state.books.stored_answer(self.operation.operation_id) is not None:
            return self.perform()
        processor.store(self.state.books, self.operation, reply)
        return reply

    async def answer(self, reply: processor.Reply) -> None:
        await self.line.write(await self.booked(reply))

    async def booked(self, reply: processor.Reply) -> bytes:
        """The bytes of the reply, once it and its effect are in the file."""
        self.state.books.answer(self.number, reply.status)
        await self.state.books.committed()
        return self.line.encode(reply) if self.line.is_open else b""

    async def drop(self) -> None:
        await self.state.books.committed()
        self.line.close()
