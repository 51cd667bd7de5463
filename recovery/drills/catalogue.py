"""All drills, in the order in which `all` runs them."""

from collections.abc import Mapping

from recovery.drills import (
    broker_loss,
    checkpoint_version,
    database_restart,
    duplicate_delivery,
    late_effect,
    lost_reply,
    mixed,
    poison,
    provider_throttle,
    stale_compensation,
    stale_token,
    two_beats,
    worker_stop,
    zombie,
)
from recovery.drills.run import Drill

DRILLS: Mapping[str, Drill] = {
    module.DRILL.name: module.DRILL
    for module in (
        *(duplicate_delivery, worker_stop, zombie, provider_throttle, stale_token),
        *(checkpoint_version, broker_loss, database_restart, lost_reply, late_effect),
        *(stale_compensation, two_beats, poison, mixed),
    )
}
