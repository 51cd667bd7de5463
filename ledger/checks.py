"""What `manage.py check` refuses: saga definitions that would fail in production, and settings that break a promise."""

import sys
from collections import Counter
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import register as register_check
from django.db import connection

from ledger import acts, checkpoints, patience, saga, versions
from ledger.saga import Effect, Local, NotUndoable, Saga, Step

NAME_MAX = 100  # the column's
ACTING = """
SELECT current_user::text, rolsuper OR rolbypassrls
    OR EXISTS (SELECT 1 FROM pg_class t WHERE t.oid = to_regclass('ledger_job') AND pg_has_role(r.oid, t.relowner, 'MEMBER'))
FROM pg_roles r WHERE rolname = current_user
"""


def register() -> None:
    register_check(definitions, "amends")
    register_check(periods, "amends")
    register_check(interpreter, "amends")
    register_check(transactions, "amends")
    register_check(server, Tags.database)


def definitions(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Mistakes in any registered saga."""
    found = [e for definition in saga.registered() for e in problems(definition)]
    counts = Counter(definition.key for definition in saga.registered())
    return found + [
        _error("E001", f"saga {name} version {version} is registered {n} times")
        for (name, version), n in counts.items()
        if n > 1
    ]


def problems(definition: Saga) -> list[CheckMessage]:
    """Mistakes in one definition."""
    names = Counter(step.name for step in definition.steps)
    found = [
        _error("E002", f"{_name(definition)}: two steps are named {name}")
        for name, n in names.items()
        if n > 1
    ]
    if not definition.steps:
        found.append(_error("E003", f"{_name(definition)} has no step"))
    pivots = [i for i, step in enumerate(definition.steps) if step.pivot]
    if len(pivots) > 1:
        found.append(_error("E004", f"{_name(definition)} has more than one pivot"))
    pivot = pivots[0] if pivots else len(definition.steps)
    for index, step in enumerate(definition.steps):
        found += _step_problems(definition, step, before_pivot=index < pivot)
    return found


def _step_problems(definition: Saga, step: Step, *, before_pivot: bool) -> list[CheckMessage]:
    where = f"{_name(definition)}, step {step.name}"
    found = _handler_problems(where, step)
    if before_pivot and isinstance(step.undo, NotUndoable):
        found.append(_error("E007", f"{where}: cannot be undone, and stands before the pivot"))
    if step.rows is not None and not isinstance(step.effect, Local):
        found.append(_error("E010", f"{where}: declares rows, but is not LOCAL"))
    if ":" in step.name or not step.name or len(step.name) > NAME_MAX:
        found.append(
            _error("E011", f"{where}: a step's name has 1 to {NAME_MAX} characters and no colon")
        )
    if step.attempts < 1 or step.undo_attempts < 1:
        found.append(_error("E012", f"{where}: an attempt budget is at least 1"))
    for direction in saga.Direction:
        found += _effect_problems(f"{where}, {direction}", step, step.effect_of(direction))
    return found


def _handler_problems(where: str, step: Step) -> list[CheckMessage]:
    do: object = step.do  # definitions are other people's code: their types are not proof
    undo: object = step.undo
    found = []
    if not callable(do):
        found.append(_error("E005", f"{where}: its handler {do!r} cannot be called"))
    if undo is None or (isinstance(undo, NotUndoable) and not undo.reason):
        found.append(_error("E006", f"{where}: neither an undo nor a reason why there is none"))
    elif not (isinstance(undo, NotUndoable) or callable(undo)):
        found.append(_error("E005", f"{where}: its undo {undo!r} cannot be called"))
    return found


def _effect_problems(where: str, step: Step, effect: Effect | Local) -> list[CheckMessage]:
    if isinstance(effect, Local):
        return []
    found = []
    if not (effect.key_lifetime or effect.probe or step.parks_when_unknown):
        text = "an effect that is neither local nor repeatable nor probeable needs parks_when_unknown=True"
        found.append(_error("E008", f"{where}: {text}"))
    if effect.resend_to_learn and (effect.probe or not effect.key_lifetime):
        text = "resend_to_learn is for an effect with a key and without a probe"
        found.append(_error("E013", f"{where}: {text}"))
    lease = timedelta(seconds=settings.LEASE_SECONDS)
    if effect.key_lifetime and effect.key_lifetime * patience.KEY_LIFETIME_MARGIN <= lease:
        text = "a key_lifetime that ends within LEASE_SECONDS can never be used to send again"
        found.append(_error("E015", f"{where}: {text}"))
    if effect.late_probe_suffices and not effect.probe:
        found.append(_error("E014", f"{where}: late_probe_suffices needs a probe"))
    if effect.call_seconds > settings.CALL_SECONDS_MAX:
        found.append(_error("E009", f"{where}: call_seconds is over CALL_SECONDS_MAX"))
    return found


def periods(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """The order of periods that the promises rest on."""
    s = settings
    grace = 5.0
    rules = [
        (s.CALL_SECONDS_MAX + 1 < s.LEASE_SECONDS, "CALL_SECONDS_MAX + 1 s < LEASE_SECONDS"),
        (
            s.PROVIDER_CALL_SECONDS <= s.CALL_SECONDS_MAX,
            "PROVIDER_CALL_SECONDS <= CALL_SECONDS_MAX",
        ),
        (s.HEARTBEAT_SECONDS * 3 <= s.LEASE_SECONDS, "HEARTBEAT_SECONDS x 3 <= LEASE_SECONDS"),
        (
            s.RUN_SECONDS + s.CALL_SECONDS_MAX + grace < s.TASK_TIME_LIMIT_SECONDS,
            "RUN_SECONDS + CALL_SECONDS_MAX + 5 s < TASK_TIME_LIMIT_SECONDS",
        ),
        (
            s.TASK_TIME_LIMIT_SECONDS < s.VISIBILITY_TIMEOUT_SECONDS,
            "TASK_TIME_LIMIT_SECONDS < VISIBILITY_TIMEOUT_SECONDS",
        ),
        (s.SWEEP_SECONDS <= s.LEASE_SECONDS, "SWEEP_SECONDS <= LEASE_SECONDS"),
        (
            1 <= s.DATABASE_SILENCE_SECONDS <= s.LEASE_SECONDS / 2,
            "1 <= DATABASE_SILENCE_SECONDS <= LEASE_SECONDS / 2",
        ),
        (s.SWEEP_SECONDS <= s.SWEEP_SECONDS_RARE, "SWEEP_SECONDS <= SWEEP_SECONDS_RARE"),
        (
            s.RETENTION_DAYS == 0 or acts.LOOKS_BACK.days <= s.RETENTION_DAYS,
            f"RETENTION_DAYS is 0, or {acts.LOOKS_BACK.days} at least: evidence is judged for so long",
        ),
        (s.PUBLISH_TIMEOUT_SECONDS <= 1, "PUBLISH_TIMEOUT_SECONDS <= 1"),
        (s.SLOTS >= 1, "SLOTS >= 1"),
        (s.PROVIDER_FAILURES_MAX >= 1, "PROVIDER_FAILURES_MAX >= 1"),
        (s.PROVIDER_THROTTLE_SECONDS_MAX >= 1, "PROVIDER_THROTTLE_SECONDS_MAX >= 1"),
        (
            0 < s.PROVIDER_OPEN_SECONDS <= s.PROVIDER_OPEN_SECONDS_MAX,
            "0 < PROVIDER_OPEN_SECONDS <= PROVIDER_OPEN_SECONDS_MAX",
        ),
        (
            s.CHECKPOINT_FORMAT in checkpoints.READABLE,
            "CHECKPOINT_FORMAT is one that this build reads",
        ),
        (
            (s.RUN_SECONDS + versions.REPORT_SECONDS) / versions.SILENCE < s.UNSUPPORTED_SECONDS,
            "2 x (RUN_SECONDS + 30 s) < UNSUPPORTED_SECONDS",
        ),
    ]
    return [
        _error("E020", f"the periods must be in order: {rule}")
        for holds, rule in rules
        if not holds
    ]


def interpreter(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Assertions stay on."""
    if sys.flags.optimize:
        return [_error("E021", "python -O removes assertions that guard money; run without it")]
    return []


def transactions(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """A request that is one transaction would hold it across the ring, and make `durable` fail."""
    if settings.DATABASES["default"].get("ATOMIC_REQUESTS"):
        return [
            _error(
                "E022", "ATOMIC_REQUESTS must be off: submission opens its own durable transaction"
            )
        ]
    return []


def server(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """PostgreSQL 18 or newer, with a commit that means it, and this process in the role that it is meant to have."""
    if not databases or "default" not in databases:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit')"
        )
        version, commit = cursor.fetchone()
        cursor.execute(ACTING)
        user, is_above = cursor.fetchone()
    found = []
    if version < 180_000:
        found.append(_error("E030", f"PostgreSQL 18 or newer is needed, this is {version}"))
    if commit == "off":
        found.append(_error("E031", "synchronous_commit is off: an accepted booking could be lost"))
    return found + _role_problems(user, is_above=is_above)


def _role_problems(user: str, *, is_above: bool) -> list[CheckMessage]:
    """Of a process that is to act in a role. A pooler drops the start-up option by which one is derived."""
    role = settings.ROLES[settings.ROLE]
    if not role or user == role:
        return []
    whose = "a superuser, or may act as the tables' owner" if is_above else "another login"
    text = (
        f"AMENDS_ROLE is {settings.ROLE}, but the database sees {user} ({whose}) in place of {role}:"
        f" the guards by privilege do not bind. Set {settings.ROLE.upper()}_DATABASE_URL to a login named {role}"
    )
    return [_error("E032", text)]


def _name(definition: Saga) -> str:
    return f"saga {definition.name} version {definition.version}"


def _error(number: str, message: str) -> CheckMessage:
    return Error(message, id=f"ledger.{number}")
