"""PostgreSQL's data on a small file system of its own, for a drill that fills it.

The server is stopped, its data copied onto a tmpfs that has little more room than that, and started there; in the end all
of it goes back. Kept here: the mount lies inside the servers' own directory and is gone when this is over, whichever way
it ends (see config.guardian); nothing outside of it is ever filled.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

from config import embedded, guardian, wheels

DATABASE = "DATABASE_URL"
SPARE_BYTES = 64 * 2**20
PIECES = (2**20, 4096)  # fill up roughly, then to the last page
COMMAND_SECONDS = 60.0


class SmallDisk:
    """What `recovery.drills.place.SmallDisk` asks for. Use as a context: PostgreSQL is moved there and back."""

    def __init__(self, servers: embedded.Servers) -> None:
        self._servers = servers
        self._place = servers.directory / "small"
        self._home = servers.data
        self._ballast = self._place / "ballast"
        self._log = servers.directory / "postgres.log"
        self._log_start = self._log.stat().st_size

    def __enter__(self) -> Self:
        self._servers.halt(DATABASE, signal.SIGINT)
        self._servers.mounted(self._place)
        self._place.mkdir(exist_ok=True)
        _mount(self._place, _size(self._home) + SPARE_BYTES)
        self._move(self._place / "data")
        return self

    def __exit__(self, *_exc: object) -> None:
        self.free()
        self._servers.halt(DATABASE, signal.SIGINT)
        shutil.rmtree(self._home)
        self._move(self._home)
        guardian.unmount(str(self._place))

    def fill(self) -> None:
        """Take all the room that is left; again and again, also what the server has given back."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for piece in PIECES:
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(bytes(piece))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def said(self, text: str) -> int:
        """How often PostgreSQL's log has said this since the data came here."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().count(text.encode())

    def revive(self) -> bool:
        """Start the server again if it has ended; whether it had."""
        if not self._servers.has_ended(DATABASE):
            return False
        self._servers.halt(DATABASE, signal.SIGQUIT)  # what it may have left of its group
        self._servers.start_again(DATABASE)
        return True

    def _move(self, to: Path) -> None:
        _run("cp", "--archive", str(self._servers.data), str(to))
        self._servers.keep_data_in(to)
        self._servers.start_again(DATABASE)


def can_be_had(place: Path) -> bool:
    """Whether this process may mount a tmpfs: root may in general, and in many containers not."""
    if os.geteuid() != 0 or not (shutil.which("mount") and shutil.which("umount")):
        return False
    probe = place / "may-mount"
    probe.mkdir()
    try:
        _mount(probe, PIECES[1])
    except wheels.EmbeddedError:
        return False
    else:
        return True
    finally:
        guardian.unmount(str(probe))
        probe.rmdir()


def _mount(place: Path, size: int) -> None:
    user = wheels.account()
    owner = f",uid={user.pw_uid},gid={user.pw_gid}" if user else ""
    _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700{owner}", "tmpfs", str(place))


def _size(tree: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in tree.rglob("*") if path.is_file())


def _run(*command: str) -> None:
    done = subprocess.run(  # noqa: S603 - commands of this module
        command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    if done.returncode:
        raise wheels.EmbeddedError(f"{command[0]} failed: {done.stderr.strip()}")
