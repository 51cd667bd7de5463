"""The sagas of the simulation: between them every kind of effect that a step may declare, and two versions of one.

trip      a local hold, a payment by key and probe, the hold secured, a ticket as the pivot; version 2 has a fee besides
tour      a remote reserve that can be buried, a step that can only be asked about, one that can be neither repeated nor
          asked about, the pivot, and a step after it
errand    no keys at all: a doubt is settled by a late probe, or a tombstone, and by nothing else
parcel    keys without a probe, learnt going backward by sending again; a probe that is believed when it comes late
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ledger import outcomes, saga
from ledger.saga import LOCAL, Effect, NotUndoable, Saga, Step
from recovery.simulation import provider as providers
from recovery.simulation import stock
from recovery.simulation.provider import Provider, Service

Faulty = Callable[[saga.Call], None]


def sagas(provider: Provider, faulty: Faulty) -> list[Saga]:
    """The definitions, with this provider behind them; `faulty` may make a LOCAL handler raise."""
    make = _Maker(provider, faulty)
    trip = [make.hold(), make.step("pay", key=True, probe=True), make.secure(), make.ticket()]
    fee = make.step("fee", key=True, attempts=2)
    tour = [
        make.step("reserve", probe=True, tombstone=True),
        make.step("guide", probe=True),
        make.step("deposit", parks_when_unknown=True),
        make.ticket(),
        make.step("notify", key=True, probe=True, undo=NotUndoable("after the pivot"), attempts=40),
    ]
    parcel = [
        make.step("label", key=True, resend_to_learn=True, attempts=2),
        make.step("weigh", probe=True, late_probe_suffices=True),
        make.step("send", key=True, probe=True, tombstone=True),
    ]
    errand = [make.step(name, probe=True) for name in ("ask", "order")]
    errand.append(make.step("fetch", probe=True, tombstone=True))
    return [
        Saga("sim.errand", version=1, steps=errand),
        Saga("sim.trip", version=1, steps=trip),
        Saga("sim.trip", version=2, steps=[*trip[:2], fee, *trip[2:]]),
        Saga("sim.tour", version=1, steps=tour),
        Saga("sim.parcel", version=1, steps=parcel),
    ]


class _Maker:
    def __init__(self, provider: Provider, faulty: Faulty) -> None:
        self._provider, self._faulty = provider, faulty

    def hold(self) -> Step:
        return Step(
            "hold",
            do=self._local(stock.hold),
            undo=self._local(stock.release_if_held),
            effect=LOCAL,
            arguments=stock.arguments,
            undo_arguments=stock.holder_arguments,
            rows=stock.ITEMS,
        )

    def secure(self) -> Step:
        return Step(
            "secure",
            do=self._local(stock.secure),
            undo=self._local(stock.release_if_secured),
            effect=LOCAL,
            arguments=stock.holder_arguments,
            undo_arguments=stock.holder_arguments,
            rows=stock.ITEMS,
        )

    def ticket(self) -> Step:
        return self.step("ticket", key=True, probe=True, pivot=True, undo=NotUndoable("the pivot"))

    def step(self, name: str, **options: Any) -> Step:
        """A remote step with these promises; its undo always has a key and a probe."""
        promises = {
            name: options.pop(name, False)
            for name in ("key", "probe", "tombstone", "resend_to_learn", "late_probe_suffices")
        }
        returns = promises["late_probe_suffices"]  # it promises that a thread sends in time
        hangs = 2 * providers.CALL_SECONDS if returns else providers.HANG_SECONDS
        do = Service(name, 1, keyed=promises["key"], hangs=hangs)
        undo = Service(f"{name}.undo", -1, keyed=True)
        return Step(
            name,
            do=self._provider.calls(do),
            undo=options.pop("undo", self._provider.calls(undo)),
            effect=self._effect(do, promises),
            undo_effect=self._effect(undo, {"key": True, "probe": True}),
            arguments=_arguments,
            undo_arguments=_undo_arguments(name),
            **options,
        )

    def _effect(self, service: Service, promises: Mapping[str, bool]) -> Effect:
        keyed = promises.get("key", False)
        effect = Effect(
            provider="P",
            key_lifetime=timedelta(seconds=providers.KEY_LIFETIME) if keyed else None,
            request_lifetime=timedelta(seconds=providers.REQUEST_LIFETIME),
            probe_lag=timedelta(seconds=providers.PROBE_LAG),
            resend_to_learn=promises.get("resend_to_learn", False),
            late_probe_suffices=promises.get("late_probe_suffices", False),
            call_seconds=providers.CALL_SECONDS,
        )
        if promises.get("probe"):
            effect = replace(effect, probe=self._provider.probes(service))
        if promises.get("tombstone"):
            effect = replace(effect, tombstone=self._provider.buries(service))
        return effect

    def _local(self, handler: saga.Handler) -> saga.Handler:
        def handle(call: saga.Call) -> outcomes.Outcome:
            self._faulty(call)
            return handler(call)

        return handle


def _arguments(request: Mapping[str, Any], _done: Mapping[str, saga.Done]) -> dict[str, Any]:
    return {"amount_minor": request["amount_minor"], "currency": request["currency"]}


def _undo_arguments(step: str) -> saga.Arguments:
    def arguments(request: Mapping[str, Any], done: Mapping[str, saga.Done]) -> dict[str, Any]:
        return {**_arguments(request, done), "effect": done[step].ref}

    return arguments
