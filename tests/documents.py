"""Reads our own pages, for the tests that hold them to what is true: fenced blocks and tables."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM_SECONDS = 20


@dataclass(frozen=True)
class Page:
    """A page of `docs/`, by its file name."""

    name: str

    @property
    def text(self) -> str:
        return (ROOT / "docs" / self.name).read_text(encoding="utf-8")

    def fence(self, info: str) -> str:
        """The one block with this info string."""
        block = rf"^```{re.escape(info)}\n(.*?)^```$"
        found = re.findall(block, self.text, re.MULTILINE | re.DOTALL)
        assert len(found) == 1, f"{self.name} has {len(found)} blocks {info!r}"
        return str(found[0])

    def tables(self, *header: str) -> list[list[str]]:
        """The rows of all tables under this header, cell by cell."""
        rows: list[list[str]] = []
        wanted, inside = list(header), False
        for line in self.text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                inside = False
            elif cells == wanted:
                inside = True
            elif inside and set(line) - set("|- "):
                rows.append(cells)
        assert rows, f"{self.name} has no table {wanted}"
        return rows


def quoted(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def run(program: str) -> tuple[str, str]:
    """What a quoted program prints, to its output and its error output; it must end well."""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program],
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=True,
    )
    return ran.stdout, ran.stderr
