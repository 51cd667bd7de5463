"""Are the locks what pyproject.toml asks for?

A resolver that meets a pin it does not like falls back to an old release in silence. Kept here: no
locked version is under its floor, both locks agree, every version carries a hash, and no address of
an index or a machine is in them. Needs only the standard library: `make lock` runs it before
anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME, DEVELOPMENT = "requirements.lock", "requirements-dev.lock"
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(.*)$")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)")
ADDRESS = re.compile(r"://|^\s*-(?:i|f|-index|-extra|-find|-trusted)|file:", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version; a suffix (.post2, b1) counts as its number."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def is_under(version: str, floor: str) -> bool:
    have, want = release(version), release(floor)
    width = max(len(have), len(want))
    pad = (0,) * width
    return (have + pad)[:width] < (want + pad)[:width]


def floors(requirements: list[str]) -> dict[str, str]:
    """{package: lowest version asked for}; a requirement without one is a mistake of its own."""
    found = {}
    for requirement in requirements:
        match = REQUIREMENT.match(requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: cannot read {requirement!r}")
        floor = re.search(r">=\s*([^\s,;]+)", match[2])
        found[normal(match[1])] = floor[1] if floor else ""
    return found


def pins(text: str) -> dict[str, str]:
    matches = (PINNED.match(line) for line in text.splitlines())
    return {normal(match[1]): match[2] for match in matches if match}


def floor_problems(lock: str, asked: dict[str, str], locked: dict[str, str]) -> list[str]:
    problems = [
        f"pyproject.toml: {name} has no floor" for name, floor in asked.items() if not floor
    ]
    for name, floor in asked.items():
        if name not in locked:
            problems.append(f"{lock}: {name} is missing (make lock)")
        elif floor and is_under(locked[name], floor):
            problems.append(f"{lock}: {name} {locked[name]} is under its floor {floor} (make lock)")
    return problems


def text_problems(lock: str, text: str) -> list[str]:
    problems = [f"{lock}: names an address: {match[0].strip()}" for match in ADDRESS.finditer(text)]
    blocks = [block for block in re.split(r"\n(?=[A-Za-z0-9])", text) if PINNED.match(block)]
    unhashed = [block.split()[0] for block in blocks if "--hash=sha256:" not in block]
    return problems + [f"{lock}: no hash for {requirement}" for requirement in unhashed]


def problems(root: Path) -> list[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    texts = {lock: (root / lock).read_text() for lock in (RUNTIME, DEVELOPMENT)}
    runtime, development = pins(texts[RUNTIME]), pins(texts[DEVELOPMENT])
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found = [problem for lock, text in texts.items() for problem in text_problems(lock, text)]
    found += floor_problems(RUNTIME, floors(project["dependencies"]), runtime)
    found += floor_problems(DEVELOPMENT, floors(project["dependencies"] + extras), development)
    found += [
        f"the locks disagree on {name}: {version} and {development.get(name, 'nothing')}"
        for name, version in runtime.items()
        if development.get(name) != version
    ]
    return sorted(set(found))


def main() -> int:
    found = problems(ROOT)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
