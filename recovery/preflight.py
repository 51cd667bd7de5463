"""Whether a build may drive what is in flight: this one, before it is deployed, and another, before one goes back to it.

The promise: a yes means that every job that has not ended is of a version that the build knows, in a checkpoint format
that it reads, with no step in its journal that its definition lacks. A job that a build does not know is left alone by it
and not lost; but nobody drives it, and that is what a no is about. Nothing is written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader

from ledger import checkpoints, saga, selectors
from ledger.saga import Direction
from ledger.selectors import Kind

MANIFEST = 1  # the version of the manifest's own shape
IDS_MAX = 10


class BadManifest(Exception):
    """A file that is no manifest of a build, and why."""


@dataclass(frozen=True, slots=True)
class Build:
    """What a build can drive: steps by saga and version, and its checkpoint formats."""

    name: str
    sagas: Mapping[tuple[str, int], frozenset[str]]
    reads: frozenset[int]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why not: what is in the way, how many jobs that are, and the first of them."""

    what: str
    jobs: int = 0
    ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    question: str
    obstacles: list[Obstacle]
    notes: list[str] = field(default_factory=list)

    @property
    def is_yes(self) -> bool:
        return not self.obstacles


# --- The manifest ----------------------------------------------------------------------------------------------------


def manifest() -> dict[str, Any]:
    """All that this build knows. What of its migrations is applied is null where the database cannot be asked."""
    return {
        "manifest": MANIFEST,
        "build": settings.BUILD,
        "sagas": [_saga(s) for s in sorted(saga.registered(), key=lambda s: s.key)],
        "checkpoints": {
            "reads": list(checkpoints.READABLE),
            "writes": settings.CHECKPOINT_FORMAT,
        },
        "migrations": migrations(),
    }


def migrations() -> dict[str, dict[str, str | None]]:
    """Per app, its last migration that this build knows, and the last that is applied."""
    applied: set[tuple[str, str]] | None
    try:
        loader = MigrationLoader(connection, ignore_no_migrations=True)
        applied = set(loader.applied_migrations)
    except Error:
        loader, applied = MigrationLoader(None, ignore_no_migrations=True), None
    found = {}
    for app, name in sorted(loader.graph.leaf_nodes()):
        of_app = sorted(n for a, n in applied or () if a == app)
        found[app] = {"known": name, "applied": of_app[-1] if of_app else None}
    return found


def _saga(definition: saga.Saga) -> dict[str, Any]:
    steps = [
        {
            "name": step.name,
            "pivot": step.pivot,
            "undo": callable(step.undo),
            "effect": _effect(step.effect_of(Direction.FORWARD)),
            "undo_effect": _effect(step.effect_of(Direction.BACKWARD)),
        }
        for step in definition.steps
    ]
    return {"name": definition.name, "version": definition.version, "steps": steps}


def _effect(effect: saga.Effect | saga.Local) -> str:
    return "local" if isinstance(effect, saga.Local) else effect.provider


def load(path: Path) -> dict[str, Any]:
    """The manifest in this file, or BadManifest."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadManifest(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadManifest(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("manifest") != MANIFEST:
        raise BadManifest(
            f"{path} is no manifest of version {MANIFEST}, as `manifest --json` prints it"
        )
    return found


def build(stated: Mapping[str, Any]) -> Build:
    """What a manifest says of its build, or BadManifest."""
    try:
        sagas = {
            (str(s["name"]), int(s["version"])): frozenset(str(p["name"]) for p in s["steps"])
            for s in stated["sagas"]
        }
        reads = frozenset(int(n) for n in stated["checkpoints"]["reads"])
        return Build(str(stated["build"]), sagas, reads)
    except (KeyError, TypeError, ValueError) as error:
        raise BadManifest(f"the manifest is not whole: {type(error).__name__} {error}") from None


# --- The answers -----------------------------------------------------------------------------------------------------


def may_deploy() -> Answer:
    """Whether this build may be started on this database."""
    this = build(manifest())
    found = list(_unknown(selectors.in_flight(), this))
    for app, name in _unapplied():
        found.append(Obstacle(f"migration {app} {name} is not applied: run migrate first"))
    return Answer(f"may build {this.name} be deployed", found)


def may_go_back(stated: Mapping[str, Any]) -> Answer:
    """Whether one may roll back from this build to the one with this manifest, as things are now."""
    other, this = build(stated), build(manifest())
    found = list(_unknown(selectors.in_flight(), other))
    writes = settings.CHECKPOINT_FORMAT
    if writes not in other.reads:
        reads = ", ".join(map(str, sorted(other.reads)))
        what = f"this build writes checkpoint format {writes}; build {other.name} reads {reads}"
        found.append(Obstacle(what))
    notes = [
        f"{name} version {version} is not known there: jobs of it that are accepted from now on are obstacles"
        for name, version in sorted(this.sagas.keys() - other.sagas.keys())
    ]
    return Answer(f"may one go back to build {other.name}", found, notes)


def _unapplied() -> list[tuple[str, str]]:
    loader = MigrationLoader(connection, ignore_no_migrations=True)
    return sorted(set(loader.graph.nodes) - set(loader.applied_migrations))


def _unknown(kinds: Iterable[Kind], build: Build) -> Iterator[Obstacle]:
    """What of the jobs in flight that build cannot drive."""
    for kind in kinds:
        name = f"{kind.saga} version {kind.version}"
        steps = build.sagas.get((kind.saga, kind.version))
        if steps is None:
            yield _obstacle(kind, f"build {build.name} does not know {name}")
            continue
        if kind.checkpoint_format not in build.reads:
            what = f"build {build.name} does not read checkpoint format {kind.checkpoint_format}"
            yield _obstacle(kind, f"{what}, which jobs of {name} have")
        for step in sorted(kind.steps.keys() - steps):
            what = f"{name} of build {build.name} has no step {step}, which journals name"
            ids = selectors.in_flight_ids(kind, IDS_MAX, step)
            yield Obstacle(what, kind.steps[step], [str(id_) for id_ in ids])


def _obstacle(kind: Kind, what: str) -> Obstacle:
    return Obstacle(what, kind.jobs, [str(i) for i in selectors.in_flight_ids(kind, IDS_MAX)])
