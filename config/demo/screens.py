"""What is seen of a running demo: a live timeline on a terminal, plain lines anywhere else.

Kept here: nothing is decided by what is shown, and a reader of plain lines gets each row once, in
the order in which it was first seen.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TextIO, override

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from config.demo import timeline

COUNT_STEP = 50  # bookings between two lines about the replay, where lines stay


class Screen(Protocol):
    """Where the demo shows what happens."""

    def say(self, text: str) -> None:
        """A line on its own."""

    def open_scene(self, title: str, done: str) -> None:
        """A scene begins: what is done to the system."""

    def show(self, rows: Sequence[timeline.Row]) -> None:
        """The timeline as it now is."""

    def note(self, text: str) -> None:
        """Something that we did, within the scene."""

    def close_scene(self, problems: Sequence[str], why: str) -> None:
        """The verdict, and why it is right or what is wrong."""

    def count(self, accepted: int, states: Mapping[str, int]) -> None:
        """How far the replay is."""


class PlainScreen(Screen):
    """Lines on a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._seen: set[timeline.Row] = set()
        self._begin = 0.0
        self._counted = (0, 0)

    @override
    def say(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    @override
    def open_scene(self, title: str, done: str) -> None:
        self._seen.clear()
        self._counted = (0, 0)
        self.say(f"\n== {title}\n   {done}")

    @override
    def show(self, rows: Sequence[timeline.Row]) -> None:
        self._begin = min((row.at for row in rows), default=0.0)
        for row in rows:
            if row not in self._seen:
                self._seen.add(row)
                side = f"ledger    {row.ledger}" if row.ledger else f"provider  {row.provider}"
                self.say(f"   {row.at - self._begin:6.2f} s  {side}")

    @override
    def note(self, text: str) -> None:
        self.say(f"   ** {text}")

    @override
    def close_scene(self, problems: Sequence[str], why: str) -> None:
        for problem in problems:
            self.say(f"   WRONG: {problem}")
        if not problems:
            self.say(f"   ok: {why}")

    @override
    def count(self, accepted: int, states: Mapping[str, int]) -> None:
        step = accepted // COUNT_STEP, states.get("confirmed", 0) // COUNT_STEP
        if step != self._counted:
            self._counted = step
            self.say(f"   {_progress(accepted, states)}")


class LiveScreen(Screen):
    """A timeline that grows in place. Leave it by `close_scene`, or as a context, to give the cursor back."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._title, self._done = "", ""
        self._rows: Sequence[timeline.Row] = ()
        self._notes: list[str] = []
        self._counts = ""

    @override
    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    @override
    def open_scene(self, title: str, done: str) -> None:
        self._title, self._done, self._rows, self._notes, self._counts = title, done, (), [], ""
        self._live = Live(self._drawn(), console=self._console, auto_refresh=False)
        self._live.start()

    @override
    def show(self, rows: Sequence[timeline.Row]) -> None:
        self._rows = rows
        self._refresh()

    @override
    def note(self, text: str) -> None:
        self._notes.append(text)
        self._refresh()

    @override
    def close_scene(self, problems: Sequence[str], why: str) -> None:
        self._refresh(_verdict(problems, why))
        self.stop()

    @override
    def count(self, accepted: int, states: Mapping[str, int]) -> None:
        self._counts = _progress(accepted, states)
        self._refresh()

    def stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _refresh(self, verdict: Text | None = None) -> None:
        if self._live is not None:
            self._live.update(self._drawn(verdict), refresh=True)

    def _drawn(self, verdict: Text | None = None) -> Panel:
        table = Table(box=None, expand=True, pad_edge=False)
        table.add_column("seconds", justify="right", width=7, style="dim")
        table.add_column("our ledger", ratio=3)
        table.add_column("the provider's books", ratio=2)
        begin = min((row.at for row in self._rows), default=0.0)
        for row in self._rows:
            table.add_row(f"{row.at - begin:.2f}", row.ledger, row.provider)
        parts: list[Text | Table] = [Text(self._done, style="italic")]
        parts += [table] if self._rows else []
        parts += [Text(f"⚡ {note}", style="bold yellow") for note in self._notes]
        parts += [Text(self._counts)] if self._counts else []
        parts += [verdict] if verdict is not None else []
        return Panel(Group(*parts), title=self._title, title_align="left")


def _progress(accepted: int, states: Mapping[str, int]) -> str:
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{accepted} accepted: {shown}"


def _verdict(problems: Sequence[str], why: str) -> Text:
    if problems:
        return Text("\n".join(f"✗ {problem}" for problem in problems), style="bold red")
    return Text(f"✓ {why}", style="green")
