"""`manage.py manifest`: what this build knows. As JSON, it is what `preflight --against` of another build reads."""

import json
from typing import Any, override

from django.core.management.base import BaseCommand, CommandParser

from recovery import preflight


class Command(BaseCommand):
    help = "The sagas, versions, steps, checkpoint formats and migrations that this build knows."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json")

    @override
    def handle(self, *_args: Any, **options: Any) -> None:
        found = preflight.manifest()
        self.stdout.write(json.dumps(found, indent=2) if options["as_json"] else _text(found))


def _text(found: dict[str, Any]) -> str:
    formats = found["checkpoints"]
    reads = ", ".join(map(str, formats["reads"]))
    lines = [f"build {found['build']}", f"checkpoints: reads {reads}, writes {formats['writes']}"]
    for definition in found["sagas"]:
        lines.append(f"{definition['name']} version {definition['version']}")
        lines += [f"    {_step(step)}" for step in definition["steps"]]
    lines += [
        f"migrations of {app}: known {m['known']}, applied {m['applied'] or 'none, or not asked'}"
        for app, m in found["migrations"].items()
    ]
    return "\n".join(lines)


def _step(step: dict[str, Any]) -> str:
    undo = f"undo {step['undo_effect']}" if step["undo"] else "no undo"
    return f"{step['name']:<24}{step['effect']:<12}{undo}{', pivot' if step['pivot'] else ''}"
