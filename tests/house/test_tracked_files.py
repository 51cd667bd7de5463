"""What is committed holds anywhere: no path of a machine, no address of a registry, no secret, no dead link."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = {
    "",
    ".py",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".lock",
    ".txt",
    ".cfg",
    ".sh",
    ".html",
    ".example",
}
THIS = Path(__file__).resolve()
# Written in pieces, so that this file does not name them either.
PATHS = re.compile(
    "|".join(
        (
            "/" + "work/",
            "/" + "root/(?!\\.cache/pip)",
            "/" + "home/[a-z]",
            "/" + "Users/",
            "\\.\\./" + "shared",
        )
    )
)
HOSTS = re.compile(
    "pypi"
    + r"\.org|pythonhosted|/simple\b|registry\.[a-z0-9-]+\.(?:org|com|io|net)|ghcr\.io|quay\.io|npmjs|proxy\.golang"
)
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bsk_live_|\bAKIA[0-9A-Z]{16}\b|\bghp_[A-Za-z0-9]{30}"
)
LINK = re.compile(r"\[[^]]*\]\(([^)#\s]+)[^)]*\)")


def committed() -> list[Path]:
    """What git tracks or would track; files that it is told to ignore are not ours."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, timeout=20, check=False,
    )  # fmt: skip
    if listing.returncode:
        pytest.skip("not a git clone")
    names = [name for name in listing.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def texts() -> list[tuple[Path, str]]:
    found = [path for path in committed() if path.suffix in TEXT and path.resolve() != THIS]
    assert len(found) > 20
    return [(path, path.read_text(errors="replace")) for path in found]


@pytest.mark.parametrize("pattern", [PATHS, HOSTS, SECRETS], ids=["paths", "hosts", "secrets"])
def test_nothing_of_one_machine_is_committed(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]
    assert found == []


def test_links_between_documents_lead_somewhere() -> None:
    dead = [
        f"{path.relative_to(ROOT)}: {target}"
        for path, text in texts()
        if path.suffix == ".md"
        for target in LINK.findall(text)
        if "://" not in target
        and not target.startswith("mailto:")
        and not (path.parent / target).exists()
    ]
    assert dead == []


def test_large_files_are_not_committed_by_mistake() -> None:
    large = [str(path.relative_to(ROOT)) for path in committed() if path.stat().st_size > 500_000]
    assert large == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (PATHS, "cd /" + "work/main"),
        (HOSTS, "https://pypi" + ".org/x"),
        (SECRETS, "AKIA" + "A" * 16),
    ],
)
def test_the_patterns_find_what_they_should(pattern: re.Pattern[str], text: str) -> None:
    """Control: the test above would fail if there were something to find."""
    assert pattern.search(text)
