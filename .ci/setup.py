"""Make .venv from requirements-dev.lock, unless it is there already and made from this lock.

Runs on any Python that .ci/python accepts, before anything is installed. Kept here: the stamp is
written last, so that a set-up that was interrupted is done again; and TERM or Ctrl-C ends what was
started.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
VENV = ROOT / ".venv"
STAMP = VENV / "amends-stamp"
PYTHON = VENV / "bin" / "python"
INSTALL_SECONDS = 900


def expected() -> str:
    """What the environment was made from; its place too, because scripts inside name it."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    return f"{digest} {VENV}\n"


def is_current() -> bool:
    if not STAMP.is_file() or STAMP.read_text() != expected():
        return False
    probe = subprocess.run([str(PYTHON), "-c", "import django"], capture_output=True, check=False)  # noqa: S603
    return probe.returncode == 0


def run(*command: str) -> None:
    # stdout belongs to the command that follows (a demo's JSON): everything here goes to stderr.
    process = subprocess.Popen(  # noqa: S603 - our own interpreter
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    try:
        status = process.wait(timeout=INSTALL_SECONDS)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
        raise
    if status:
        raise SystemExit(f"set-up failed (status {status}): {' '.join(command)}")


def leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    if is_current():
        return
    print(
        f"setting up {VENV.name} from {LOCK.name} (Python {sys.version.split()[0]}) ...",
        file=sys.stderr,
    )
    if VENV.exists():
        shutil.rmtree(VENV)
    run(sys.executable, "-m", "venv", str(VENV))
    # Errors only: pip's warnings here speak of the machine's own settings.
    options = ["--quiet", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    locked = ["--require-hashes", "--requirement", str(LOCK)]
    run(str(PYTHON), "-m", "pip", "install", *options, *locked)
    STAMP.write_text(expected())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
