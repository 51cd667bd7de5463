"""The locks are what pyproject.toml asks for; and the check that says so can say no."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check_locks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_locks", ROOT / ".ci" / "check_locks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PROJECT = """
[project]
dependencies = ["django>=6.1.3,<6.2", "celery[redis]>=5.7.0"]
[project.optional-dependencies]
test = ["pytest>=9.2"]
"""
RUNTIME = """django==6.1.3 \\
    --hash=sha256:aa
celery==5.7.0 \\
    --hash=sha256:bb
"""
DEVELOPMENT = RUNTIME + "pytest==9.2.0 \\\n    --hash=sha256:cc\n"


def write(
    root: Path, project: str = PROJECT, runtime: str = RUNTIME, development: str = DEVELOPMENT
) -> Path:
    (root / "pyproject.toml").write_text(project)
    (root / "requirements.lock").write_text(runtime)
    (root / "requirements-dev.lock").write_text(development)
    return root


def test_the_locks_of_this_project_hold(check_locks: ModuleType) -> None:
    assert check_locks.problems(ROOT) == []


def test_good_locks_are_accepted(check_locks: ModuleType, tmp_path: Path) -> None:
    assert check_locks.problems(write(tmp_path)) == []


def test_a_version_under_its_floor_is_refused(check_locks: ModuleType, tmp_path: Path) -> None:
    old = RUNTIME.replace("celery==5.7.0", "celery==5.6.9")
    assert check_locks.problems(write(tmp_path, runtime=old)) == [
        "requirements.lock: celery 5.6.9 is under its floor 5.7.0 (make lock)",
        "the locks disagree on celery: 5.6.9 and 5.7.0",
    ]


def test_a_missing_package_a_missing_hash_and_a_missing_floor_are_refused(
    check_locks: ModuleType, tmp_path: Path
) -> None:
    project = PROJECT.replace("pytest>=9.2", "pytest").replace('"django>', '"absent>=1", "django>')
    bare = DEVELOPMENT.replace("    --hash=sha256:cc\n", "")
    assert check_locks.problems(write(tmp_path, project=project, development=bare)) == [
        "pyproject.toml: pytest has no floor",
        "requirements-dev.lock: absent is missing (make lock)",
        "requirements-dev.lock: no hash for pytest==9.2.0",
        "requirements.lock: absent is missing (make lock)",
    ]


@pytest.mark.parametrize(
    "line", ["--index-url x", "--find-links x", "-i x", "# from https://example.com/index"]
)
def test_an_address_in_a_lock_is_refused(
    check_locks: ModuleType, tmp_path: Path, line: str
) -> None:
    found = check_locks.problems(write(tmp_path, runtime=f"{line}\n{RUNTIME}"))
    assert len(found) == 1
    assert found[0].startswith("requirements.lock: names an address:")


@pytest.mark.parametrize(
    ("version", "floor", "under"),
    [
        ("6.1.10", "6.1.9", False),
        ("6.1", "6.1.0", False),
        ("9.1.2.post1", "9.1.2.post2", True),
        ("10.0", "9.9", False),
    ],
)
def test_versions_compare_as_numbers(
    check_locks: ModuleType, version: str, floor: str, under: bool
) -> None:
    assert check_locks.is_under(version, floor) is under
