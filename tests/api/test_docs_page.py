"""The page of the schema comes from our own files and runs under the strict policy, in a real browser too."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from config import programs
from tests.acceptance.conftest import live
from tests.acceptance.live import Live

__all__ = ["live"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
    "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom",
]  # fmt: skip


def policy(answer: object) -> dict[str, str]:
    said = answer["Content-Security-Policy"]  # type: ignore[index]
    return {name: rest for name, _, rest in (one.strip().partition(" ") for one in said.split(";"))}


def test_the_page_is_made_of_our_own_files_and_of_nothing_written_into_it() -> None:
    answer = Client().get("/v1/docs")
    assert answer.status_code == 200
    page = answer.content.decode()
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(links) == 4
    for link in links:
        assert finders.find(link.removeprefix("/static/")), link
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == ["", ""]
    assert "<style" not in page
    assert "style=" not in page


@pytest.mark.parametrize("path", ["/v1/docs", "/admin/login/", "/v1/hotels"])
def test_no_page_may_run_what_is_not_ours(path: str, database: None) -> None:
    found = policy(Client().get(path))
    assert found["default-src"] == "'none'"
    assert found["script-src"] == found["style-src"] == found["connect-src"] == "'self'"
    assert found["frame-ancestors"] == found["base-uri"] == "'none'"


@pytest.mark.timeout(120)
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_it_and_has_nothing_to_complain_about(live: Live, tmp_path: Path) -> None:
    live.start(programs.API)
    command = [
        str(CHROMIUM),
        *FLAGS,
        f"--user-data-dir={tmp_path}",
        f"{live.stack.api_url}/v1/docs",
    ]
    run = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert "create_booking" in run.stdout, run.stderr
    assert "/v1/webhooks/{endpoint_id}" in run.stdout.replace("<wbr>", "").replace("\u200b", "")
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
