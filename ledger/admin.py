"""Read-only pages of the ledger for staff: no add, no change, no delete. Acts on jobs are not here yet."""

from typing import TYPE_CHECKING, Any, override

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from ledger import models, selectors
from ledger.operations import Attempt, Receipt

if TYPE_CHECKING:
    Admin = admin.ModelAdmin[Any]
else:
    Admin = admin.ModelAdmin  # generic in the stubs only


class ReadOnlyAdmin(Admin):
    """Looks and never touches: even a superuser changes a job only through the engine."""

    show_full_result_count = False
    list_per_page = 50
    actions = None

    @override
    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    @override
    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(models.Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = (
        "short_id",
        "saga",
        "tenant",
        "state",
        "direction",
        "parked_reason",
        "created_at",
    )
    list_filter = ("state", "parked_reason", "saga", "lane")
    list_select_related = ("tenant",)
    search_fields = ("=id",)
    ordering = ("-id",)
    fields = (
        ("state", "direction", "lane"),
        ("parked_reason", "parked_at"),
        "parked_detail",
        "journal",
        ("saga", "version", "tenant"),
        ("created_at", "due_at", "finished_at"),
        ("fence", "seq", "lease_until", "leases_lost"),
        ("turned_by", "turned_reason", "turned_at"),
        "id",
    )

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[models.Job]:
        return super().get_queryset(request).defer("input")

    @admin.display(description="job")
    def short_id(self, job: models.Job) -> str:
        return str(job.id)[-12:]

    @admin.display(description="journal")
    def journal(self, job: models.Job) -> SafeString:
        """Attempts, receipts and sightings, oldest first; everything escaped."""
        lines = sorted(selectors.entries(job.id), key=lambda entry: entry.at)
        return format_html_join("", "<div>{} {} {}:{} #{}</div>", (_line(entry) for entry in lines))


def _line(entry: Any) -> tuple[str, str, str, str, int]:
    match entry:
        case Attempt():
            what = "attempt"
        case Receipt():
            what = f"receipt: {entry.outcome}"
        case _:
            what = f"sighting ({entry.kind}): {entry.outcome}"
    return (
        entry.at.isoformat(timespec="milliseconds"),
        what,
        entry.step,
        str(entry.direction),
        entry.n,
    )


@admin.register(models.Tenant)
class TenantAdmin(ReadOnlyAdmin):
    list_display = ("name", "weight", "running_cap", "created_at")
    search_fields = ("name",)


@admin.register(models.Submission)
class SubmissionAdmin(ReadOnlyAdmin):
    list_display = ("id", "tenant", "created_at")
    list_select_related = ("tenant",)
    fields = ("id", "tenant", "key", "job", "created_at")
    search_fields = ("=id",)
