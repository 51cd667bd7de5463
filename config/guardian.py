"""Ends the processes of an owner that died without ending them itself, unmounts what it mounted, and removes its directory.

An owner that is killed by SIGKILL cannot clean up, and what it started would run on as orphans. So
it starts this small process, tells it over a pipe what it starts, and dismisses it at an orderly
end. When the pipe closes without that, the owner is dead: the guardian ends everything it was told
of. It runs alone, by path, and so imports nothing of the project.

Kept here: a process is ended only while it is the one that was named (same pid and same start
time), because the number of a dead process may belong to somebody else by now.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

END_SECONDS = 8.0
POLL_SECONDS = 0.05
GATE = 'read -r _ < "$0" || exit 1; exec "$@"'


class Guardian:
    """The owner's end of the pipe. A dead guardian never disturbs its owner."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own file, run by our own interpreter
            [sys.executable, "-I", "-S", str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            start_new_session=True,
        )

    def start(
        self, command: Sequence[str], *, ending: signal.Signals = signal.SIGKILL, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own; should the owner die, the group is ended with `ending`.

        The program is not run before the guardian knows of it: the child waits at a gate, a pipe from us, and leaves
        when the owner dies before opening it. Options are those of Popen; standard input stays ours.
        """
        gate, opener = os.pipe()
        try:
            if options.get("user") is not None:
                os.fchown(gate, options["user"], -1)  # the child opens it by name, as that user
            process = subprocess.Popen(  # noqa: S603 - the caller's program
                ["/bin/sh", "-c", GATE, f"/dev/fd/{gate}", *command],
                start_new_session=True,
                pass_fds=(gate, *options.pop("pass_fds", ())),
                **options,
            )
            self._tell(
                {"watch": process.pid, "start": start_time(process.pid), "ending": int(ending)}
            )
            os.write(opener, b"\n")
        finally:
            os.close(gate)
            os.close(opener)
        return process

    def forget(self, pid: int) -> None:
        self._tell({"forget": pid})

    def unmount(self, place: Path) -> None:
        """Unmount this, once every process is gone, should the owner die."""
        self._tell({"unmount": str(place)})

    def remove(self, directory: Path) -> None:
        """Remove this directory, once every process is gone, should the owner die."""
        self._tell({"remove": str(directory)})

    def dismiss(self) -> None:
        """The owner has cleaned up: nothing is left to do."""
        self._tell({"dismiss": True})
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=3)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._process.stdin is None or self._process.stdin.closed:
            return
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()


def start_time(pid: int) -> str:
    """When the kernel started this process, or "" if it is gone (a zombie is) or the system has no /proc."""
    try:
        # The command name, in brackets, may hold anything: count the fields from its end.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def is_alive(pid: int, start: str) -> bool:
    """Is it still the process that was named?"""
    if start:
        return start_time(pid) == start
    if Path("/proc/self/stat").exists():
        return False  # it was gone before it could be looked at
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def end_group(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, number)


def end_all(watched: dict[int, tuple[str, int]]) -> None:
    """End what is left, last started first; by force after some seconds."""
    pause = threading.Event()
    for pid, (start, ending) in reversed(watched.items()):
        if is_alive(pid, start):
            end_group(pid, ending)
    for _ in range(int(END_SECONDS / POLL_SECONDS)):
        if not any(is_alive(pid, start) for pid, (start, _) in watched.items()):
            break
        pause.wait(POLL_SECONDS)
    for pid, (start, _) in watched.items():
        # A leader may be gone while its group is not; a number that leads another process by now is let alone.
        if is_alive(pid, start) or not start_time(pid):
            end_group(pid, signal.SIGKILL)


def unmount(place: str) -> None:
    """At once for whoever looks, and for good when the last file in it is closed; a place without a mount is fine."""
    with contextlib.suppress(OSError):
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)  # noqa: S603, S607


def remove_all(directories: list[str]) -> None:
    pause = threading.Event()
    for _ in range(20):
        left = [name for name in directories if Path(name).exists()]
        if not left:
            return
        for name in left:
            shutil.rmtree(name, ignore_errors=True)
        pause.wait(POLL_SECONDS)


def main(messages: IO[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: dict[int, tuple[str, int]] = {}
    mounts: list[str] = []
    directories: list[str] = []
    for line in messages:
        message = json.loads(line)
        if "watch" in message:
            watched[message["watch"]] = (message["start"], message["ending"])
        elif "forget" in message:
            watched.pop(message["forget"], None)
        elif "unmount" in message:
            mounts.append(message["unmount"])
        elif "remove" in message:
            directories.append(message["remove"])
        else:
            return
    end_all(watched)
    for place in mounts:
        unmount(place)
    remove_all(directories)


if __name__ == "__main__":
    main(sys.stdin.buffer)
