"""Plans as they were locked: the stored copies are what counts, whatever lies in the checkout."""

from __future__ import annotations

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.plan import Lock, Plan, ReadShared, load_plan, plan_with
from raykit.records import ExperimentEntry, Locked, RunRecord, Setting
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
    lock = read_lock(store, experiment, digest)
    key = layout.plan(experiment, digest, "plan.toml")
    data = store.get(key)
    if sha256(data) != lock.plan_sha256:
        raise CorruptError(f"{key} is not the plan of its lock")
    shared = None if lock.shared is None else stored_shared(store, experiment, digest)
    plan = load_plan(data, where=key, shared=shared)
    if lock.shared != (plan.shared and plan.shared.sha256):
        raise CorruptError(f"{key} takes tables from another file than its lock says")
    return plan


def read_run_plan(store: ObjectStore, experiment: str, run: str, digest: str) -> Plan:
    """What a run trains under a lock: the plan as it was locked, with the run's own setting where it is a trial.

    Raises:
        NotFoundError: the plan is not in the store.
        CorruptError: the plan does not match the digest in its lock, or the run's record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return plan_with(read_plan(store, experiment, digest), read_setting(store, experiment, run))


def read_setting(store: ObjectStore, experiment: str, run: str) -> Setting | None:
    """What a trial has instead of what its plan says; None of any other run.

    Raises:
        CorruptError: the run's record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.run_record(experiment, run)
    try:
        return RunRecord.from_bytes(store.get(key), key).setting
    except NotFoundError:
        return None


def read_lock(store: ObjectStore, experiment: str, digest: str) -> Lock:
    """A lock, as it was stored.

    Raises:
        NotFoundError: it is not in the store.
        CorruptError: it does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.plan(experiment, digest, "plan.lock")
    data = store.get(key)
    if sha256(data) != digest:
        raise CorruptError(f"{key} does not match its sha256")
    return Lock.from_bytes(data, key)


def stored_shared(store: ObjectStore, experiment: str, digest: str) -> ReadShared:
    """Reads the shared file of a lock, by whatever name its plan has it.

    Raises, when it is called:
        NotFoundError: it is not in the store.
        StoreUnavailableError: the store did not answer.
    """
    return lambda name: store.get(layout.plan(experiment, digest, "shared.toml"))


def newest_stored_lock(store: ObjectStore, name: str) -> Lock | None:
    """The newest lock of an experiment; None if it has none.

    Raises:
        CorruptError: the experiment's log or its lock is damaged.
        StoreUnavailableError: the store did not answer.
    """
    locked = newest_lock(store, name)
    return None if locked is None else read_lock(store, name, locked.plan)


def newest_lock(store: ObjectStore, name: str) -> Locked | None:
    """The newest plan that was locked for an experiment.

    Raises:
        CorruptError: the experiment's log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    locks = read_locks(store, name)
    return locks[-1] if locks else None


def read_locks(store: ObjectStore, name: str) -> list[Locked]:
    """Every plan that was locked for an experiment, in order.

    Raises:
        CorruptError: the experiment's log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    entries = Log(store, layout.experiment_log(name), ExperimentEntry, by="reader").refresh()
    return [event for entry in entries for event in entry.events if isinstance(event, Locked)]


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
