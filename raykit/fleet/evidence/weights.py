"""The weights that a plan names, or passes over, and in what it differs from the plan that trained them."""

from __future__ import annotations

import time

from raykit.data.members import compare
from raykit.data.members import load as load_members
from raykit.errors import CorruptError, NotFoundError
from raykit.fleet.evidence.earlier import Others, same_decision
from raykit.fleet.evidence.paper import counted_rows
from raykit.fleet.site import RUN, Site
from raykit.plan import TRAINS_FROM, Lock, LockedBase, Plan, RowChange, contract, differences
from raykit.qc.backlog import require_usable
from raykit.read.bases import BaseFacts, base_facts, locked_commit
from raykit.read.candidates import run_of_key
from raykit.read.qc import read_qc
from raykit.read.sizing import base_experiment
from raykit.records import Commit
from raykit.review import Base
from raykit.store.base import ObjectStore
from raykit.store.commit import verify
from raykit.store.log import RunLog
from raykit.store.plans import newest_lock, read_run_plan
from raykit.train.find_recipe import load_recipe
from raykit.train.fit import misfits
from raykit.train.prepare import Prepared


def declared(site: Site) -> Base | None:
    """The weights that the plan names.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    return None if site.base is None else _base(site, site.base, declared=True)


def require_examined(site: Site) -> None:
    """Let only a plan rest on a checkpoint that its own experiment's QC has passed and a person has reviewed.

    Adopted weights, and those of a plan without `[qc]`, have nobody who was to examine them.

    Raises:
        GateError: it failed its QC, or nobody has examined and reviewed it.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    plan, base = site.plan, site.base
    if plan.base is None or base is None or base.origin != "run":
        return
    if plan.base.start not in (*TRAINS_FROM, "use"):
        return
    read = read_qc(site.store, base.experiment, run_of_key(base.key), now=time.time())
    if read is not None:
        standing = read.backlog.of(base.manifest)
        require_usable(standing, plan.base.candidate, experiment=base.experiment)


def undeclared(site: Site, log: RunLog, others: Others) -> Base | None:
    """Weights for the same decision that the plan does not name: of all in this store, those with the most updates.

    A run that has begun goes on from its own.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if log.state.attempts:
        return None
    trained = [
        (commit, name)
        for name, (lock, _) in others.items()
        if lock is not None and same_decision(site, lock)
        for commit in _trained(site.store, name)
    ]
    for commit, name in sorted(trained, key=lambda each: each[0].update, reverse=True):
        try:
            verify(site.store, commit)
        except CorruptError:
            continue  # weights that do not verify are none; `raykit check` says what is wrong with them
        return _base(site, locked_commit(name, name, commit), declared=False)
    return None


def _trained(store: ObjectStore, experiment: str) -> list[Commit]:
    """The checkpoints of an experiment that hold anything trained."""
    log = RunLog(store, experiment, RUN, by="reader")
    log.refresh()
    return [commit for commit in log.state.commits if commit.update > 0]


def _base(site: Site, locked: LockedBase, *, declared: bool) -> Base:
    facts: BaseFacts = base_facts(site.store, locked)
    return Base(
        locked=locked,
        role=facts.role,
        production=facts.role in ("production-candidate", "release-model"),
        approved_by=None,
        verifies=facts.verifies,
        updates=facts.updates or 0,
        accelerator_ms=facts.accelerator_ms,
        cost=facts.cost,
        accelerators=facts.accelerators,
        rows=_told_rows(site, locked) if facts.rows is None else facts.rows,
        dependents=tuple(name for name in facts.dependents if name != site.name),
        declared=declared,
        has_optimizer=facts.has_optimizer,
    )


def _told_rows(site: Site, locked: LockedBase) -> int | None:
    """How many rows weights from elsewhere were trained on, where somebody has counted them since."""
    found = counted_rows(site).get(locked.candidate)
    return None if found is None else found.rows


def times_from(site: Site, base: Base | None) -> str | None:
    """The experiment whose times say something about a plan that starts from this base."""
    return base_experiment(None if base is None else base.locked)


def plan_of(store: ObjectStore, base: Base | None) -> Plan | None:
    """The plan that trained the base; None if it was made elsewhere.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if base is None or base.locked.origin == "adopted":
        return None
    locked = newest_lock(store, base.locked.experiment)
    if locked is None:
        return None
    try:
        run = run_of_key(base.locked.key)
        return read_run_plan(store, base.locked.experiment, run, locked.plan)
    except NotFoundError as error:
        name = base.locked.experiment
        raise CorruptError(
            f"{name} has trained weights, and what they were trained by is gone: {error}",
            rule="what a restart would discard can be said",
            remedy="raykit check",
        ) from error


def change_of(site: Site, lock: Lock, ready: Prepared | None, base: Base) -> RowChange | None:
    """How the rows differ from those of the base; None if nobody knows what those were.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if ready is None or base.locked.origin == "adopted":
        if base.rows is None:
            return None
        after = lock.rows.get("train", 0)
        return RowChange(
            before=base.rows,
            after=after,
            added=max(0, after - base.rows),
            removed=max(0, base.rows - after),
            relabelled=0,
        )
    locked = newest_lock(site.store, base.locked.experiment)
    if locked is None:
        return None
    try:
        members = load_members(site.store, base.locked.experiment, locked.data)
    except NotFoundError as error:
        raise CorruptError(
            f"the members that {base.locked.experiment} was trained on are gone: {error}",
            rule="what a restart would discard can be said",
            remedy="raykit check",
        ) from error
    found = compare(members, ready.source)
    counts = {} if found is None else found.counts
    return RowChange(
        before=members.manifest.rows,
        after=members.manifest.rows + counts.get("added", 0) - counts.get("missing", 0),
        added=counts.get("added", 0),
        removed=counts.get("missing", 0),
        relabelled=counts.get("content", 0),
    )


def settings_of(was: Plan, now: Plan) -> tuple[str, ...]:
    """What else shapes the weights and differs, one line each."""
    old, new = contract(was), contract(now)
    old.pop("base"), new.pop("base")
    return tuple(f"{key}: {before} -> {after}" for key, before, after in differences(old, new))


def same_bits(site: Site, lock: Lock, base: Base | None, was: Plan | None, change: RowChange | None) -> bool:
    """Whether the plan, from the start, would train what the base's run has trained to its end, bit for bit.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if base is None or was is None or change is None or change.changed or settings_of(was, site.plan):
        return False
    anew = was.base is None or was.base.start == "fresh"
    locked = newest_lock(site.store, base.locked.experiment)
    if not anew or not was.run.deterministic or locked is None or locked.code != lock.code:
        return False
    log = RunLog(site.store, base.locked.experiment, run_of_key(base.locked.key), by="reader")
    log.refresh()
    return log.state.completed and base.locked.update == log.state.recorded()


def misfits_of(site: Site, base: Base | None) -> tuple[str, ...]:
    """Tensors of the recipe's model that the base's weights do not fit.

    Raises:
        PlanError: the recipe or its params are not usable, or rows were not counted.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    plan = site.plan
    if base is None or plan.base is None or plan.base.start == "use" or plan.data is not None:
        return ()
    return misfits(site.store, base.locked, load_recipe(plan.recipe, site.folder), plan.run.params)
