"""Plans as they were locked: the stored copies are what counts, whatever lies in the checkout."""

from __future__ import annotations

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.plan import Lock, Plan, load_plan
from raykit.records import ExperimentEntry, Locked
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log


def read_plan(store: ObjectStore, experiment: str, digest: str) -> Plan:
    """The plan of a lock, as it was locked.

    Raises:
        NotFoundError: it is not in the store.
        CorruptError: it does not match the digest in its lock.
        PlanError: it does not parse, which a locked plan does.
    """
    lock_key = layout.plan(experiment, digest, "plan.lock")
    lock_bytes = store.get(lock_key)
    if sha256(lock_bytes) != digest:
        raise CorruptError(f"{lock_key} does not match its sha256")
    lock = Lock.from_bytes(lock_bytes, lock_key)
    key = layout.plan(experiment, digest, "plan.toml")
    data = store.get(key)
    if sha256(data) != lock.plan_sha256:
        raise CorruptError(f"{key} is not the plan of its lock")
    return load_plan(data, where=key)


def newest_lock(store: ObjectStore, name: str) -> Locked | None:
    """The newest plan that was locked for an experiment.

    Raises:
        CorruptError: the experiment's log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    found = None
    for entry in Log(store, layout.experiment_log(name), ExperimentEntry, by="reader").refresh():
        for event in entry.events:
            if isinstance(event, Locked):
                found = event
    return found


def stored_plan(store: ObjectStore, name: str) -> Plan:
    """The newest plan that was locked for an experiment.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    locked = newest_lock(store, name)
    if locked is None:
        raise NotFoundError(f"there is no experiment {name} in {store.url}", field="NAME", value=name)
    return read_plan(store, name, locked.plan)
