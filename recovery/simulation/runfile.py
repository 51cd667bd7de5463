"""The run file: what a run played, counted and found, and of which commit on which machine.

It resumes and merges only with runs of the same commit: figures of two systems put together say nothing of either.
"""

import json
import os
import platform
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from recovery.simulation.chronicle import Violation
from recovery.simulation.runs import Total

UNKNOWN = "unknown"


def fresh() -> Total:
    """A run of this commit on this machine, with nothing played."""
    return Total(commit=_commit(), machines=[_machine()])


def read(path: Path) -> Total:
    """ValueError for what is no run file, or one of another commit; OSError where there is none."""
    stored, here = json.loads(path.read_text()), fresh()
    try:
        total = Total(
            ranges=stored["ranges"],
            counters=Counter(stored["counters"]),
            violations=[Violation(*v) for v in stored["violated"]],
            seconds=stored["seconds"],
            commit=stored["commit"],
            machines=stored["machines"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no run file") from error
    if total.commit != here.commit:
        raise ValueError(f"{path} is of commit {total.commit}, this is {here.commit}")
    return total


def resumed(path: Path) -> Total:
    """The run to go on with; a new one where an existing directory has no such file yet."""
    if path.parent.is_dir() and not path.exists():
        return fresh()
    return read(path)


def write(path: Path, total: Total) -> None:
    """In one go: a run that is ended half-way leaves the file that was."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(total.as_json(), indent=1) + "\n")
    new.replace(path)


def _machine() -> str:
    return f"{os.cpu_count()} CPUs, Python {platform.python_version()}"


def _commit() -> str:
    """Of the tree that runs; with a mark where it has changes of its own."""
    commit = _git("rev-parse", "HEAD").strip()
    if not commit:
        return UNKNOWN
    return f"{commit}+changes" if _git("status", "--porcelain", "--untracked-files=no") else commit


def _git(*words: str) -> str:
    """What git says here; nothing, where there is no git or no repository."""
    program = shutil.which("git")
    if program is None:
        return ""
    here = Path(__file__).parent
    done = subprocess.run(  # noqa: S603  words of this module
        [program, *words], cwd=here, capture_output=True, text=True, timeout=20, check=False
    )
    return done.stdout if done.returncode == 0 else ""
