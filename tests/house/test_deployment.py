"""The image and the compose file keep the rules of deployment that a linter does not know."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ("worker", "worker-compensation", "worker-sweeps")
OURS = {"migrate", "web", *WORKERS, "beat", "sandbox"}
LANES = {"forward", "compensation", "sweeps", "webhooks"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return found


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "docker" / "Dockerfile").read_text()


def test_every_process_is_there_and_hardened(services: dict[str, Any]) -> None:
    assert set(services) == OURS | {"postgres", "valkey"}
    for name in OURS:
        assert services[name]["read_only"] is True, name
        assert services[name]["cap_drop"] == ["ALL"], name


def test_every_lane_has_exactly_one_kind_of_worker(services: dict[str, Any]) -> None:
    commands = [services[name]["command"] for name in WORKERS]
    lanes = [lane for command in commands for lane in command[command.index("-Q") + 1].split(",")]
    assert sorted(lanes) == sorted(LANES)


def test_each_process_has_its_role_and_the_sandbox_no_address_of_ours(
    services: dict[str, Any],
) -> None:
    roles = {name: services[name]["environment"]["AMENDS_ROLE"] for name in OURS - {"sandbox"}}
    workers = dict.fromkeys((*WORKERS, "beat"), "worker")
    assert roles == {"migrate": "owner", "web": "api", **workers}
    assert "environment" not in services["sandbox"]


def test_no_password_has_a_default() -> None:
    text = (ROOT / "compose.yaml").read_text()
    for name in ("POSTGRES_PASSWORD", "VALKEY_PASSWORD", "DJANGO_SECRET_KEY"):
        uses = re.findall(r"\$\{" + name + r"([^}]*)\}", text)
        assert uses, name
        assert all(use.startswith(":?") for use in uses), name


def test_postgresql_keeps_its_data_and_valkey_never_evicts(services: dict[str, Any]) -> None:
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert "deadlock_timeout=100ms" in services["postgres"]["command"]
    valkey = " ".join(services["valkey"]["command"])
    assert "--appendonly yes" in valkey
    assert "--maxmemory-policy noeviction" in valkey


def test_a_worker_gets_more_time_to_stop_than_a_run_may_take(services: dict[str, Any]) -> None:
    from config import settings  # noqa: PLC0415 - only this test needs it

    for name in WORKERS:
        assert (
            int(services[name]["stop_grace_period"].removesuffix("s"))
            > settings.TASK_TIME_LIMIT_SECONDS
        )


def test_no_shell_stands_between_a_stop_and_the_process(
    services: dict[str, Any], dockerfile: str
) -> None:
    """A shell as PID 1 hears TERM and tells nobody: every command is a list, run by tini, and tini signals it alone."""
    told = re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", dockerfile, re.MULTILINE)
    assert [json.loads(command)[0] for command in told] == ["tini", "gunicorn"]
    for name in OURS:
        command = services[name].get("command", ["gunicorn"])
        assert isinstance(command, list), name
        assert command[0] in {"python", "celery", "gunicorn"}, name
        assert not {"entrypoint", "stop_signal", "init"} & services[name].keys(), name
        assert int(services[name]["stop_grace_period"].removesuffix("s")) >= 30, name
        assert "--detach" not in command, name


def test_the_image_is_built_from_the_lock_and_runs_as_nobody_special(dockerfile: str) -> None:
    assert "--no-deps --require-hashes" in dockerfile
    assert "USER 10001:10001" in dockerfile
    assert 'ENTRYPOINT ["tini", "--"]' in dockerfile
    for word in ("<<", "--link", ":latest", "ADD "):
        assert word not in dockerfile, word
