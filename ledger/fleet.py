"""Tables that belong to no job: providers, the order of dispatch, what the sweeps did, what the builds can drive.

What would break without them is speed, order and sight, never a promise: every row here can be lost and comes back.
"""

from typing import ClassVar, override

from django.db import models
from django.db.models import Func

RATE_MIN, RATE_MAX = 0.001, 1_000_000.0  # of what a person may set


class LedgerNow(Func):
    """`ledger_now()`, the one clock of the ledger: the database's."""

    function = "ledger_now"
    output_field = models.DateTimeField()


class Provider(models.Model):
    """An outside service and how we may call it now; one without a row has no limits. The first five are a person's to set,
    the rest is what the fleet knows (`ledger.pacing`).
    """

    name = models.CharField(max_length=100, primary_key=True)
    paused = models.BooleanField(db_default=False)
    rate_per_second = models.FloatField(null=True)
    compensation_share = models.FloatField(db_default=0.2)
    concurrency = models.PositiveIntegerField(null=True)
    throttled_until = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(db_default=0)
    opened = models.PositiveIntegerField(db_default=0)
    open_until = models.DateTimeField(null=True)
    is_tried = models.BooleanField(db_default=False)
    forward_free_at = models.DateTimeField(null=True)
    forward_queued_until = models.DateTimeField(null=True)
    compensation_free_at = models.DateTimeField(null=True)
    compensation_queued_until = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(rate_per_second__gt=0, rate_per_second__lte=RATE_MAX),
                name="ledger_provider_rate",
            ),
            models.CheckConstraint(
                condition=models.Q(compensation_share__gt=0, compensation_share__lt=1),
                name="ledger_provider_share",
            ),
            models.CheckConstraint(
                condition=models.Q(concurrency__gte=1), name="ledger_provider_concurrency"
            ),
        ]

    @override
    def __str__(self) -> str:
        return self.name


class Permit(models.Model):
    """A call that counts against its provider's concurrency, while its job has that fence, a live lease, and no receipt."""

    job_id = models.UUIDField(primary_key=True)
    provider = models.CharField(max_length=100, db_index=True)
    lane = models.CharField(max_length=32)
    fence = models.BigIntegerField()
    seq = models.BigIntegerField()

    @override
    def __str__(self) -> str:
        return f"{self.provider} {self.job_id}"


class LaneClock(models.Model):
    """Per lane: the greatest rank ever claimed in it, the virtual clock of fair queueing."""

    lane = models.CharField(max_length=32, primary_key=True)
    clock = models.FloatField(db_default=0.0)

    @override
    def __str__(self) -> str:
        return self.lane


class Share(models.Model):
    """Per tenant and lane: the last rank given out, the tail of its queue."""

    tenant = models.ForeignKey("ledger.Tenant", on_delete=models.PROTECT)
    lane = models.CharField(max_length=32)
    tail = models.FloatField(db_default=0.0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "lane"], name="ledger_share_once")
        ]

    @override
    def __str__(self) -> str:
        return f"{self.tenant_id} {self.lane}"


class Sweep(models.Model):
    """The last passes of one sweep, so that one that no longer succeeds can be seen."""

    name = models.CharField(max_length=100, primary_key=True)
    succeeded_at = models.DateTimeField(null=True)
    count = models.PositiveIntegerField(db_default=0)
    failed_at = models.DateTimeField(null=True)
    failure = models.CharField(max_length=200, db_default="")

    @override
    def __str__(self) -> str:
        return self.name


class KnownVersion(models.Model):
    """What some build that runs can drive: a saga version, and the checkpoint formats that it reads."""

    saga = models.CharField(max_length=100)
    version = models.PositiveIntegerField()
    build = models.CharField(max_length=100)
    format_from = models.PositiveSmallIntegerField()
    format_to = models.PositiveSmallIntegerField()
    reported_at = models.DateTimeField(db_default=LedgerNow())

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["saga", "version", "build"], name="ledger_knownversion_once"
            )
        ]

    @override
    def __str__(self) -> str:
        return f"{self.saga} {self.version} of build {self.build}"
