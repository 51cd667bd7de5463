"""The ledger's tables: PostgreSQL is the truth, and refuses the rows that must not exist.

Invariants kept here by constraint, and in `ledger.guards` by trigger: one job per (tenant, submission key); at most one
final receipt per operation; the operation id of an attempt is unique by (job, step, direction, n); a job is under a
lease exactly when it is running, has a reason exactly when it is parked, and has a finish time exactly when it has ended.

Journal rows are written by raw SQL in `ledger.journal`; their job columns carry no foreign key because a trigger, which
also checks fence and seq, reads the job `FOR SHARE` for every row (docs/decisions/0005).
"""

from typing import ClassVar, override

from django.db import models
from django.db.models import Q
from django.db.models.functions import UUID7

from ledger.fleet import KnownVersion as KnownVersion  # Django looks for tables here
from ledger.fleet import LaneClock as LaneClock
from ledger.fleet import LedgerNow as LedgerNow
from ledger.fleet import Permit as Permit
from ledger.fleet import Provider as Provider
from ledger.fleet import Share as Share
from ledger.fleet import Sweep as Sweep
from ledger.saga import Direction
from ledger.states import ENDED, JobState, ParkedReason


def one_of(column: str, values: list[str]) -> Q:
    return Q(**{f"{column}__in": values})


STATES = [state.value for state in JobState]
DIRECTIONS = [direction.value for direction in Direction]
ENDED_STATES = sorted(state.value for state in ENDED)
REASONS = ["", *[reason.value for reason in ParkedReason]]
# One per kind of act, beside view_job: whoever may ask need not be whoever may state a fact or end a job.
PERMISSIONS = (
    ("ask_provider", "Can ask a provider what became of an operation"),
    ("retry_compensation", "Can retry an operation under its own id"),
    ("compensate_job", "Can turn a job back"),
    ("take_job", "Can take, release and comment on a job"),
    ("resolve_unknown", "Can resolve an operation as done or not done"),
    ("force_close", "Can close a job as settled by hand, with a second person"),
)
OUTCOMES = ["confirmed", "refused", "unknown", "not_sent", "throttled"]


class Tenant(models.Model):
    """Who submits. `weight` is the tenant's share of dispatch, `running_cap` a bound on its running jobs."""

    id = models.UUIDField(primary_key=True, db_default=UUID7(), editable=False)
    name = models.CharField(max_length=100, unique=True)
    weight = models.PositiveIntegerField(db_default=1)
    running_cap = models.PositiveIntegerField(null=True, blank=True)
    announces = models.BooleanField(db_default=False)  # its jobs leave events
    created_at = models.DateTimeField(db_default=LedgerNow())

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(weight__gte=1), name="ledger_tenant_weight_positive")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["running_cap"],
                condition=Q(running_cap__isnull=False),
                name="ledger_tenant_capped",
            )
        ]

    @override
    def __str__(self) -> str:
        return self.name


class Job(models.Model):
    """One run of a saga. Written only through `ledger.submission`, `shares`, `leases` and `journal`."""

    id = models.UUIDField(primary_key=True, db_default=UUID7(), editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    saga = models.CharField(max_length=100)
    version = models.PositiveIntegerField()
    input = models.JSONField()
    lane = models.CharField(max_length=32)
    state = models.CharField(max_length=16, db_default=JobState.WAITING.value)
    direction = models.CharField(max_length=8, db_default=Direction.FORWARD.value)
    pivot_sent = models.BooleanField(db_default=False)
    # Who may write.
    fence = models.BigIntegerField(db_default=0)
    acting_fence = models.BigIntegerField(null=True)
    seq = models.BigIntegerField(db_default=0)
    write_id = models.UUIDField(null=True)
    owner = models.UUIDField(null=True)
    claim_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    leases_lost = models.PositiveIntegerField(db_default=0)
    # When and in what order.
    due_at = models.DateTimeField(db_default=LedgerNow())
    rank = models.FloatField(null=True)
    cost = models.FloatField(db_default=1.0)
    # Poison; any receipt clears all three. `losses`: leases lost in company since the last one, `strikes`: alone.
    losses = models.PositiveSmallIntegerField(db_default=0)
    suspect = models.BooleanField(db_default=False)
    strikes = models.PositiveSmallIntegerField(db_default=0)
    checkpoint_format = models.PositiveSmallIntegerField(db_default=1)  # of its last checkpoint
    # Decisions from outside the run, and people.
    deadline_at = models.DateTimeField(null=True)
    turned_by = models.CharField(max_length=100, db_default="")
    turned_reason = models.CharField(max_length=200, db_default="")
    turned_at = models.DateTimeField(null=True)
    parked_reason = models.CharField(max_length=32, db_default="")
    parked_detail = models.TextField(db_default="")
    parked_at = models.DateTimeField(null=True)
    heard = models.PositiveIntegerField(null=True)  # sightings that whoever parked it had read
    taken_by = models.CharField(max_length=150, db_default="")
    created_at = models.DateTimeField(db_default=LedgerNow())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        permissions = PERMISSIONS
        constraints: ClassVar = [
            models.CheckConstraint(condition=one_of("state", STATES), name="ledger_job_state"),
            models.CheckConstraint(
                condition=one_of("direction", DIRECTIONS), name="ledger_job_direction"
            ),
            models.CheckConstraint(
                condition=one_of("parked_reason", REASONS), name="ledger_job_reason"
            ),
            models.CheckConstraint(
                condition=Q(state="running", lease_until__isnull=False, owner__isnull=False)
                | (~Q(state="running") & Q(lease_until__isnull=True, owner__isnull=True)),
                name="ledger_job_lease_iff_running",
            ),
            models.CheckConstraint(
                condition=(Q(state="parked") & ~Q(parked_reason="") & Q(parked_at__isnull=False))
                | (~Q(state="parked") & Q(parked_reason="", parked_at__isnull=True)),
                name="ledger_job_reason_iff_parked",
            ),
            models.CheckConstraint(
                condition=Q(state__in=ENDED_STATES, finished_at__isnull=False)
                | (~Q(state__in=ENDED_STATES) & Q(finished_at__isnull=True)),
                name="ledger_job_finished_iff_ended",
            ),
            models.CheckConstraint(
                condition=~Q(state="queued") | Q(rank__isnull=False),
                name="ledger_job_queued_has_rank",
            ),
            models.CheckConstraint(
                condition=Q(acting_fence__isnull=True), name="ledger_job_acting_fence_cleared"
            ),
        ]
        indexes: ClassVar = [
            # What no claim of a build may take stands under other keys than what it may, and suspects apart.
            models.Index(
                fields=["lane", "saga", "version", "checkpoint_format", "rank"],
                condition=Q(state="queued", suspect=False),
                name="ledger_job_queued",
            ),
            models.Index(
                fields=["lane", "rank"],
                condition=Q(state="queued", suspect=True),
                name="ledger_job_suspects",
            ),
            models.Index(
                fields=["lane", "due_at"], condition=Q(state="queued"), name="ledger_job_oldest"
            ),
            models.Index(
                fields=["lane", "due_at"], condition=Q(state="waiting"), name="ledger_job_waiting"
            ),
            # Tenant by tenant, where one has a cap: what is due, and how many are queued.
            models.Index(
                fields=["tenant", "lane", "state", "due_at"],
                condition=Q(state__in=["waiting", "queued"]),
                name="ledger_job_of_tenant",
            ),
            # Not by lease_until: a renewal would then touch the index; the running ones are few. And its condition is not
            # the state's: a settle, which names ids and that state, would be planned over the index and its dead rows.
            models.Index(
                fields=["owner"], condition=Q(owner__isnull=False), name="ledger_job_running"
            ),
            models.Index(
                fields=["parked_at"], condition=Q(state="parked"), name="ledger_job_parked"
            ),
            models.Index(
                fields=["deadline_at"],
                condition=Q(
                    deadline_at__isnull=False,
                    direction="forward",
                    finished_at__isnull=True,
                    parked_at__isnull=True,
                ),
                name="ledger_job_deadline",
            ),
            models.Index(
                fields=["finished_at"],
                condition=Q(finished_at__isnull=False),
                name="ledger_job_finished",
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.saga} {self.id}"


class Submission(models.Model):
    """What the client asked for, once per (tenant, key). Outlives its job; after retention its key answers 410."""

    id = models.UUIDField(primary_key=True, db_default=UUID7(), editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(max_length=32)
    request = models.JSONField()
    job = models.OneToOneField(Job, null=True, on_delete=models.PROTECT, related_name="submission")
    created_at = models.DateTimeField(db_default=LedgerNow())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "key"], name="ledger_submission_once")
        ]

    @override
    def __str__(self) -> str:
        return str(self.id)


class JournalRow(models.Model):
    """Common to the append-only rows of a job."""

    job = models.ForeignKey(Job, on_delete=models.PROTECT, db_constraint=False, db_index=False)
    at = models.DateTimeField(db_default=LedgerNow())

    class Meta:
        abstract = True

    @override
    def __str__(self) -> str:
        return f"{self._meta.model_name} {self.pk}"


class Attempt(JournalRow):
    """Committed before each send. Attempt 1 freezes the arguments; every attempt states their fingerprint."""

    seq = models.BigIntegerField()
    fence = models.BigIntegerField()
    step = models.CharField(max_length=100)
    direction = models.CharField(max_length=8)
    n = models.PositiveIntegerField()
    arguments = models.JSONField(null=True)
    fingerprint = models.BinaryField(max_length=32)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["job", "step", "direction", "n"], name="ledger_attempt_once"
            ),
            models.CheckConstraint(
                condition=one_of("direction", DIRECTIONS), name="ledger_attempt_direction"
            ),
            models.CheckConstraint(
                condition=Q(n=1, arguments__isnull=False) | Q(n__gt=1, arguments__isnull=True),
                name="ledger_attempt_arguments_iff_first",
            ),
        ]


class Receipt(JournalRow):
    """What became of an attempt, with its evidence. `confirmed` and `refused` are final for the operation."""

    seq = models.BigIntegerField()
    fence = models.BigIntegerField()
    step = models.CharField(max_length=100)
    direction = models.CharField(max_length=8)
    n = models.PositiveIntegerField()
    outcome = models.CharField(max_length=10)
    evidence = models.JSONField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["job", "step", "direction"],
                condition=Q(outcome__in=["confirmed", "refused"]),
                name="ledger_receipt_final_once",
            ),
            models.CheckConstraint(
                condition=one_of("outcome", OUTCOMES), name="ledger_receipt_outcome"
            ),
            models.CheckConstraint(
                condition=one_of("direction", DIRECTIONS), name="ledger_receipt_direction"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["job"], name="ledger_receipt_job")]


class Sighting(JournalRow):
    """Unfenced evidence from someone without authority. Changes no state by itself."""

    step = models.CharField(max_length=100)
    direction = models.CharField(max_length=8)
    n = models.PositiveIntegerField()
    kind = models.CharField(max_length=16)
    outcome = models.CharField(max_length=16)
    evidence = models.JSONField()
    fence = models.BigIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["job"], name="ledger_sighting_job"),
            models.Index(
                fields=["at"],
                condition=Q(outcome__in=["confirmed", "refused"]),
                name="ledger_sighting_deciding",
            ),
        ]


class Checkpoint(JournalRow):
    """How far the job has settled. `format` is the version of `data`."""

    seq = models.BigIntegerField()
    fence = models.BigIntegerField()
    format = models.PositiveSmallIntegerField(db_default=1)
    data = models.JSONField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "seq"], name="ledger_checkpoint_once")
        ]


class Resolution(JournalRow):
    """A person's decision on a parked job, with evidence."""

    seq = models.BigIntegerField()
    fence = models.BigIntegerField()
    step = models.CharField(max_length=100)
    direction = models.CharField(max_length=8)
    act = models.CharField(max_length=32)
    decided_by = models.CharField(max_length=150)
    reason = models.TextField()
    evidence = models.JSONField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["job"], name="ledger_resolution_job")]


class Event(models.Model):
    """A job ended, parked, or came back from there; written by a trigger in that commit, for tenants that announce.
    `pending` until somebody has taken it to tell it; nothing else of it changes.
    """

    id = models.UUIDField(primary_key=True, db_default=UUID7(), editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="+")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    state = models.CharField(max_length=16)
    direction = models.CharField(max_length=8)
    seq = models.BigIntegerField()
    at = models.DateTimeField(db_default=LedgerNow())
    pending = models.BooleanField(db_default=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["id"], condition=Q(pending=True), name="ledger_event_pending")
        ]

    @override
    def __str__(self) -> str:
        return f"{self.job_id} {self.state}"
