"""The pages of staff: lists and one page a job, read-only, and the acts of people on it.

The promise: nothing here writes a row. A GET changes nothing; an act is a POST with its own permission, a page to confirm
it, a reason and the fence that the person saw, and it goes through `ledger.resolutions` as from the command line. There is
no add, no change and no delete, for a superuser neither.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, override

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import ActionLocation
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Exists, F, Model, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.timesince import timesince

from ledger import acts, desk, models, resolutions, watch
from ledger.saga import Direction
from ledger.states import JobState, Lane

if TYPE_CHECKING:
    Admin = admin.ModelAdmin[Any]
    People = UserAdmin[User]
else:
    Admin, People = admin.ModelAdmin, UserAdmin  # generic in the stubs only
EVIDENCE_MAX = 4_000
PERSON, GOING_BACK, ALL = "person", "going-back", "all"


class ReadOnlyAdmin(Admin):
    """Looks and never touches: even a superuser changes a job only through the engine."""

    show_full_result_count = False
    list_per_page = 50
    actions: Any = None

    @override
    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    @override
    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ActForm(forms.Form):
    """What a person says when they confirm an act."""

    operation = forms.ChoiceField()
    ref = forms.CharField(label="Provider's reference", max_length=200, required=False)
    note = forms.CharField(
        label="Evidence", max_length=EVIDENCE_MAX, required=False, widget=forms.Textarea
    )
    reason = forms.CharField(
        min_length=acts.REASON_MIN, max_length=resolutions.REASON_MAX, widget=forms.Textarea
    )

    def __init__(self, verb: acts.Verb, page: desk.Page, data: Any = None) -> None:
        super().__init__(data)
        if verb.name in acts.OF_OPERATION and page.operations:
            is_optional = page.is_whole and verb.name == "retry"
            whole = [("", "the job as a whole")] if is_optional else []
            self.fields["operation"] = forms.ChoiceField(
                choices=[*whole, *((o, o) for o in page.operations)], required=not is_optional
            )
        else:
            del self.fields["operation"]
        if verb.name != "done":
            del self.fields["ref"]
        if verb.name not in ("done", "not-done", "close"):
            del self.fields["note"]

    def asked(self, verb: acts.Verb, by: str) -> acts.Asked:
        said = self.cleaned_data
        step, _, direction = said.get("operation", "").rpartition(":")
        return acts.Asked(
            act=verb.name,
            by=by,
            reason=said["reason"],
            operation=(step, Direction(direction)) if step else None,
            evidence={name: said[name] for name in ("ref", "note") if said.get(name)},
        )


def _action(verb: acts.Verb) -> Callable[..., HttpResponse]:
    def perform(page: "JobAdmin", request: HttpRequest, jobs: QuerySet[models.Job]) -> HttpResponse:
        return page.perform(request, jobs.get(), verb)

    perform.__name__ = verb.name
    return admin.action(perform, description=verb.title, location=ActionLocation.CHANGE_FORM)


class WhoIsNeeded(admin.SimpleListFilter):
    """Opens on what needs a person; a search, or a state that was asked for, looks at all jobs."""

    title = "who is needed"
    parameter_name = "needs"

    @override
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(PERSON, "a person"), (GOING_BACK, "soon: an undo is refused"), (ALL, "anybody")]

    @override
    def value(self) -> str:
        asked = super().value()
        looks_elsewhere = bool({"q", "state__exact"} & set(self.request.GET))
        return asked or (ALL if looks_elsewhere else PERSON)

    @override
    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Without Django's own "all": it stands for the default here."""
        yield from list(super().choices(changelist))[1:]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "person":
                return queryset.filter(state=JobState.PARKED)
            case "going-back":
                refused = models.Receipt.objects.filter(
                    job=OuterRef("pk"), direction=Direction.BACKWARD, outcome="refused"
                )
                moving = [JobState.WAITING, JobState.QUEUED, JobState.RUNNING]
                return queryset.filter(Exists(refused), lane=Lane.COMPENSATION, state__in=moving)
            case _:
                return queryset


class SummarizedList(ChangeList):
    """Reads the journals of one page's jobs together."""

    @override
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = desk.summaries(list(self.result_list))
        for job in self.result_list:
            job.summary = found[job.id]


@admin.register(models.Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("short_id", "saga", "tenant", "wrong", "at_risk", "age", "taken_by")
    list_filter = (WhoIsNeeded, "state", "parked_reason", "saga", "lane")
    list_select_related = ("tenant",)
    search_fields = ("=id",)
    sortable_by = ()
    actions = [_action(verb) for verb in acts.VERBS.values()]
    fields = (
        ("state", "direction", "lane", "pivot_sent"),
        ("saga", "version", "tenant"),
        ("created_at", "due_at", "deadline_at", "finished_at"),
        ("fence", "seq", "lease_until", "leases_lost"),
        ("turned_by", "turned_reason", "turned_at"),
        "id",
    )

    class Media:
        css = {"all": ["ledger/desk.css"]}

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[models.Job]:
        jobs: QuerySet[models.Job] = super().get_queryset(request)
        return jobs.defer("input").annotate(now=models.LedgerNow())

    @override
    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Oldest first among those that wait for a person, newest first among the rest."""
        return [F("parked_at").asc(nulls_last=True), "-id"]

    @override
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return SummarizedList

    @admin.display(description="job")
    def short_id(self, job: models.Job) -> str:
        return str(job.id)[-12:]

    @admin.display(description="what is wrong")
    def wrong(self, job: Any) -> str:
        return str(job.summary.headline)

    @admin.display(description="money at risk")
    def at_risk(self, job: Any) -> str:
        return str(job.summary.at_risk)

    @admin.display(description="for")
    def age(self, job: Any) -> str:
        return timesince(job.parked_at, job.now) if job.parked_at else ""

    @override
    def get_actions(
        self, request: HttpRequest, action_location: ActionLocation = ActionLocation.CHANGE_LIST
    ) -> Any:
        """Only the acts that this person may do."""
        found = super().get_actions(request, action_location=action_location)
        return {
            name: action
            for name, action in found.items()
            if name in acts.VERBS and resolutions.may(_staff(request), name)
        }

    @override
    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        job = context["original"]
        offered = set(acts.offered(resolutions.look(job.id), _staff(request).get_username()))
        allowed = self.get_actions(request, action_location=ActionLocation.CHANGE_FORM)
        more = {
            "page": desk.page(job),
            "verbs": [v for v in acts.VERBS.values() if v.name in offered & set(allowed)],
        }
        return super().render_change_form(request, {**context, **more}, *args, **kwargs)

    def perform(self, request: HttpRequest, job: models.Job, verb: acts.Verb) -> HttpResponse:
        """Ask for a reason first; then act, on what the person's own page showed."""
        seen, heard = _number(request, "seen"), _number(request, "heard")
        page = desk.page(job)
        form = ActForm(verb, page, request.POST if "confirmed" in request.POST else None)
        if not form.is_valid():
            shown = {"original": job, "page": page, "verb": verb, "form": form}
            shown |= {"seen": seen, "heard": heard}
            context = {"opts": self.opts, "title": verb.title, "media": self.media + form.media}
            context |= {**self.admin_site.each_context(request), **shown}
            return TemplateResponse(request, "admin/ledger/job/confirm_act.html", context)
        asked = form.asked(verb, _staff(request).get_username())
        try:
            done = resolutions.act(job.id, asked, by=_staff(request), seen=seen, heard=heard)
        except acts.NotPermitted as refused:
            raise PermissionDenied(str(refused)) from refused
        except acts.ActRefused as refused:
            self.message_user(request, f"Refused: {refused}.", messages.ERROR)
        else:
            what = " ".join(filter(None, (done.act, done.operation)))
            self.message_user(
                request, f"Recorded: {what}; the job is {done.state}.", messages.SUCCESS
            )
        return HttpResponseRedirect(request.path)


def _number(request: HttpRequest, name: str) -> int:
    """What the page said that it showed. BadRequest for anything but a number."""
    said = request.POST.get(name, "")
    if not re.fullmatch(r"[0-9]{1,18}", said):
        raise BadRequest("which page was seen?")
    return int(said)


def _staff(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "the admin lets in nobody else"
    return request.user


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


class WatchedList(ChangeList):
    """Says of each sweep how it stands now."""

    @override
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        passes = {one.name: one for one in watch.passes()}
        for sweep in self.result_list:
            sweep.passed = passes.get(sweep.name)


@admin.register(models.Sweep)
class SweepAdmin(ReadOnlyAdmin):
    list_display = ("name", "age", "is_in_time", "count", "failed_at", "failure")
    ordering = ("name",)
    sortable_by = ()

    @override
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WatchedList

    @admin.display(description="succeeded")
    def age(self, sweep: Any) -> str:
        age = sweep.passed and sweep.passed.age_seconds
        return "never" if age is None else f"{age:.0f} s ago"

    @admin.display(boolean=True, description="in time")
    def is_in_time(self, sweep: Any) -> bool:
        return sweep.passed is not None and not sweep.passed.is_overdue()


# A user's staff log would go with the user; and the pages' database role may write neither of them.
admin.site.unregister([User, Group])


@admin.register(User)
class PersonAdmin(ReadOnlyAdmin, People):
    pass


@admin.register(Group)
class PeopleAdmin(ReadOnlyAdmin, GroupAdmin):
    pass
