"""What a review of a plan looks at, gathered from the plan's folder and its store. Writes nothing.

A plan that this version can run is prepared in full. One whose rows lie elsewhere is judged on paper: by the rows that
somebody counted, and without a look at its members.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from raykit.budget.admit import bound
from raykit.budget.amounts import shown, time_cost
from raykit.budget.book import Book
from raykit.budget.lines import CONFIRMATION, RECOVERY, SCRATCH, expected_cost
from raykit.budget.worst import Sizing, worst_case
from raykit.data.members import compare
from raykit.data.members import load as load_members
from raykit.errors import BudgetError, CorruptError, NotFoundError, PlanError
from raykit.fleet.site import RUN, Site, make_ready
from raykit.fleet.spending import Approving, account_now, draft_of, failed_gates, projection_of
from raykit.ids import digest_of, sha256
from raykit.plan import (
    STARTS,
    Lock,
    LockedBase,
    Looked,
    Plan,
    RowChange,
    RunSeen,
    Start,
    contract,
    decision_digest,
    differences,
    make_lock,
)
from raykit.read.bases import BaseFacts, base_facts, locked_commit
from raykit.read.root import Root
from raykit.read.sizing import (
    Known,
    accelerators_of,
    base_experiment,
    ceiling_of,
    expected_wall_ms,
    known_of,
    rate_of,
    sized,
    unit_of,
    work_around,
)
from raykit.records import Concluded, Line, Noted, Observed, RowsCounted
from raykit.review import (
    Base,
    Evidence,
    Incident,
    Measurement,
    Money,
    Negative,
    OptionCost,
    Pilot,
    Seen,
    stage_of,
)
from raykit.store.base import ObjectStore
from raykit.store.commit import newest_good
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.plans import newest_lock, read_lock, read_plan
from raykit.train import frozen
from raykit.train.fit import misfits
from raykit.train.prepare import Prepared
from raykit.train.recipe import check_params, load_recipe

NEVER_REFUSES = 1e8
"""A ceiling that has room for anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan with its evidence, as far as this version can prepare it."""

    site: Site
    lock: Lock
    ready: Prepared | None
    """None for a plan that is judged on paper."""
    book: Book | None
    """The account as a launch would begin with it; None if the plan does not fit under its ceiling."""
    evidence: Evidence


def gather(
    site: Site,
    *,
    ready: Prepared | None = None,
    approved: Approving | None = None,
    deviation: str | None = None,
) -> Case:
    """Everything that a review of this plan looks at. Writes nothing.

    `ready` is what was prepared already; `approved` is what a person is about to say of its money, and `deviation` of
    what changed after results.

    Raises:
        PlanError: the recipe, its params, its data or the splits are not usable, or rows were not counted.
        ApprovalError: the work is related to another account.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if ready is None and site.plan.data is None:
        ready = make_ready(site)
    lock = ready.lock if ready is not None else _paper_lock(site)
    log = site.run_log("reader")
    acts = read_acts(site.store, site.name)
    base = _declared(site) or _undeclared(site, lock)
    known = known_of(site.store, site.plan, base=_times_from(site, base))
    book, money = _money(site, lock, log, known)
    plan_was = _plan_of(site.store, base)
    change = None if base is None else _change(site, lock, ready, base)
    projection = None if book is None else projection_of(site, book)
    stage, stage_why = stage_of(site.plan)
    others = dict(_others(site))
    learned = [event for event in acts.learned if isinstance(event, Observed)]
    evidence = Evidence(
        plan=site.plan,
        stage=stage,
        stage_why=stage_why,
        rows=lock.rows,
        gates=lock.gates,
        money=money,
        looked=_looked(site, lock, others),
        base=base,
        change=change,
        settings=() if plan_was is None else _settings(plan_was, site.plan),
        model_settings=_misfits(site, base),
        options=_costs(site, known, base, change),
        pilot=_pilot(site, others),
        incumbent=base.locked.candidate if base is not None and base.production else None,
        plan_approved=approved is not None
        or (book is not None and projection is not None and bound(book, site.name, projection).approved),
        restart_approved=projection in {event.projection for event in acts.restarts},
        deviation=deviation,
        promote_approved=_promoted(site, book, projection),
        seen=_seen(site, log, learned),
        negatives=tuple(_negatives(site, others)),
        incidents=tuple(
            Incident(experiment=name, noted=event)
            for name, (_, events) in others.items()
            for event in events
            if isinstance(event, Noted)
        ),
        measured=tuple(_measurements(known)),
        failed_gates=failed_gates(log.state, acts),
        observed_tests=tuple(event.test for event in learned),
    )
    return Case(site=site, lock=lock, ready=ready, book=book, evidence=evidence)


# --- rows that are not here ---------------------------------------------------------------------------------


def _paper_lock(site: Site) -> Lock:
    """The lock of a plan whose rows this version cannot open: by the rows that somebody counted."""
    recipe = load_recipe(site.plan.recipe, site.folder)
    searched = () if site.plan.search is None else site.plan.search.space
    check_params(recipe, {key: value for key, value in site.plan.run.params.items() if key not in searched})
    assert site.plan.data is not None
    counted = _counted(site)
    sources = site.plan.data.sources()
    missing = sorted({source for role in sources.values() for source in role} - counted.keys())
    if missing:
        raise PlanError(
            f"nobody has counted the rows of {', '.join(missing)}",
            field="data",
            rule="a count of each, one command for one source: this version opens no source outside the recipe",
            remedy=f'raykit counted PLAN --source "{missing[0]}" --rows N --how "..." --by NAME',
        )
    rows = {role: sum(counted[source].rows for source in names) for role, names in sources.items()}
    code = frozen.pack(frozen.folder_files(site.folder))
    data = digest_of(
        {"data": site.plan.data.plain(), "rows": rows, "digests": {s: c.digest for s, c in counted.items()}}
    )
    return make_lock(site.plan, code=sha256(code), data=data, rows=rows, base=site.base)


def _counted(site: Site) -> Mapping[str, RowsCounted]:
    learned = read_acts(site.store, site.name).learned
    return {event.source: event for event in learned if isinstance(event, RowsCounted)}


# --- the base -----------------------------------------------------------------------------------------------


def _declared(site: Site) -> Base | None:
    return None if site.base is None else _base(site, site.base, declared=True)


def _undeclared(site: Site, lock: Lock) -> Base | None:
    """Weights for the same decision that the plan does not name, in an account that has paid for them."""
    if site.run_log("reader").state.attempts:
        return None
    try:
        book = draft_of(site, lock, site.run_log("reader"))
    except BudgetError:
        return None
    if not book.allocations[site.name].planned.expected:
        return None  # nothing is paid for: nothing that was paid for is repeated
    wanted = decision_digest(site.plan)
    for allocation in book.allocations.values():
        if allocation.experiment == site.name or allocation.planned.decision != wanted:
            continue
        found = _newest_weights(site.store, allocation.experiment)
        if found is not None:
            return _base(site, found, declared=False)
    return None


def _newest_weights(store: ObjectStore, experiment: str) -> LockedBase | None:
    log = RunLog(store, experiment, RUN, by="reader")
    log.refresh()
    try:
        good = newest_good(store, [commit for commit in log.state.commits if commit.update > 0])
    except CorruptError:
        return None  # weights that do not verify are none; `raykit check` says what is wrong with them
    return None if good is None else locked_commit(experiment, experiment, good.commit)


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
    )


def _told_rows(site: Site, locked: LockedBase) -> int | None:
    """How many rows weights from elsewhere were trained on, where somebody has counted them since."""
    found = _counted(site).get(locked.candidate)
    return None if found is None else found.rows


def _times_from(site: Site, base: Base | None) -> str | None:
    return base_experiment(None if base is None else base.locked)


def _plan_of(store: ObjectStore, base: Base | None) -> Plan | None:
    """The plan that trained the base; None if it was made elsewhere."""
    if base is None or base.locked.origin == "adopted":
        return None
    locked = newest_lock(store, base.locked.experiment)
    if locked is None:
        return None
    try:
        return read_plan(store, base.locked.experiment, locked.plan)
    except NotFoundError as error:
        name = base.locked.experiment
        raise CorruptError(
            f"{name} has trained weights, and what they were trained by is gone: {error}",
            rule="what a restart would discard can be said",
            remedy="raykit check",
        ) from error


def _change(site: Site, lock: Lock, ready: Prepared | None, base: Base) -> RowChange | None:
    """How the rows differ from those of the base; None if nobody knows what those were."""
    after = sum(lock.rows.values())
    if ready is None or base.locked.origin == "adopted":
        if base.rows is None:
            return None
        after = lock.rows.get("train", 0) if ready is None else after
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


def _settings(was: Plan, now: Plan) -> tuple[str, ...]:
    old, new = contract(was), contract(now)
    old.pop("base"), new.pop("base")
    return tuple(f"{key}: {before} -> {after}" for key, before, after in differences(old, new))


def _misfits(site: Site, base: Base | None) -> tuple[str, ...]:
    """Tensors of the recipe's model that the base's weights do not fit."""
    plan = site.plan
    if base is None or plan.base is None or plan.base.start in ("use", "fresh") or plan.data is not None:
        return ()
    return misfits(site.store, base.locked, load_recipe(plan.recipe, site.folder), plan.run.params)


# --- money and time -----------------------------------------------------------------------------------------


def _money(site: Site, lock: Lock, log: RunLog, known: Known) -> tuple[Book | None, Money]:
    plan = site.plan
    book: Book | None = None
    refusal: BudgetError | None = None
    planned: list[Line] = []
    try:
        book = draft_of(site, lock, log)
        train = sized(plan, known, book)
        planned = list(book.allocations[site.name].lines.values())
    except BudgetError as error:
        refusal = error
        train = _sizing_without_room(plan, known)
    around = work_around(plan, known, book, train)
    wall_ms = expected_wall_ms(plan, known)
    account = book or account_now(site, lock)
    work_ms = (0 if train.rate == 0 else train.wall_ms) if wall_ms is None else wall_ms
    unit = unit_of(plan)
    kept = (CONFIRMATION, RECOVERY, SCRATCH)
    worst = sum(line.planned for line in planned if line.line not in kept) if planned else 0
    return book, Money(
        unit=unit,
        ceiling=ceiling_of(plan) if book is None else book.allocations[site.name].ceiling,
        lines=tuple(planned),
        worst=worst if refusal is None else worst_case(train) + sum(each.worst for each in around),
        expected=expected_cost(train, work_ms) + sum(each.expected for each in around),
        expected_ms=0 if wall_ms is None else wall_ms,
        uncertain=train.uncertain or any(each.uncertain for each in around),
        charged=account.charged + account.idle_cost(time.time()),
        account=site.name if account.opened is None else account.opened.account,
        account_ceiling=account.figure,
        rates=_rates(plan, book, unit),
        billed=train.rate > 0 or bool(around),
        refusal=None if refusal is None else refusal.message,
        refusal_rule=None if refusal is None else refusal.rule,
        refusal_remedy=None if refusal is None else refusal.remedy,
    )


def _sizing_without_room(plan: Plan, known: Known) -> Sizing:
    """The sizing of a plan whose ceiling has no room for it: by its own cap, or by nothing."""
    assert plan.budget is not None
    key = "ceiling_usd" if plan.budget.ceiling_usd is not None else "accelerator_hours"
    generous = plan.budget.model_copy(update={key: NEVER_REFUSES})
    return sized(plan.model_copy(update={"budget": generous}), known, None)


def _rates(plan: Plan, book: Book | None, unit: str) -> dict[str, str]:
    found = {}
    for pool in ("train", "qc", "generate", "search"):
        if pool == "train" or any(known == pool for known in plan.pools):
            rate, source = rate_of(plan, book, pool)
            price = next((p.usd_per_hour for known, p in plan.pools.items() if known == pool), None)
            billed = f", billed by the {price.billed}" if price is not None else ""
            found[pool] = source if rate == 0 else f"{shown(rate)} ({source}{billed})"
    return found


def _costs(site: Site, known: Known, base: Base | None, change: RowChange | None) -> dict[Start, OptionCost]:
    """What each option would take: updates at the pace that is known, without set-up, margin or reserve."""
    plan = site.plan
    if base is None:
        return {"fresh": _cost_of(plan, known, plan.run.updates)}
    growth = change.after / change.before if change is not None and change.before else 1.0
    whole = max(plan.run.updates, round(base.updates * growth))
    pilot = plan.run.updates if plan.base is not None and plan.base.start == "pilot" else _pilot_updates(plan)
    updates: dict[Start, int] = {
        "use": 0,
        "continue": plan.run.updates,
        "replay": plan.run.updates,
        "pilot": pilot,
        "fresh": whole,
    }
    return {start: _cost_of(plan, known, updates[start]) for start in STARTS}


def _pilot_updates(plan: Plan) -> int:
    """A pilot is a tenth of the run, and no shorter than one checkpoint."""
    return min(plan.run.updates, max(plan.run.checkpoint_every, plan.run.updates // 10))


def _cost_of(plan: Plan, known: Known, updates: int) -> OptionCost:
    if updates == 0:
        return OptionCost(updates=0, time_ms=0, accelerator_ms=0, cost=0)
    rate, _ = rate_of(plan, None)
    if known.update_ms is None:
        return OptionCost(updates=updates, time_ms=None, accelerator_ms=None, cost=None if rate else 0)
    time_ms, gang = int(updates * known.update_ms), accelerators_of(plan)
    return OptionCost(
        updates=updates,
        time_ms=time_ms,
        accelerator_ms=time_ms * gang,
        cost=time_cost(time_ms, gang, rate),
    )


def _measurements(known: Known) -> Iterator[Measurement]:
    for what, event in known.told.items():
        yield Measurement(what=what, time_ms=event.time_ms, units=event.units, how=event.how)


def _promoted(site: Site, book: Book | None, projection: str | None) -> tuple[str, ...]:
    """Promotion thresholds are part of what an approval of this plan names."""
    if site.plan.comparison is None or book is None or projection is None:
        return ()
    if not bound(book, site.name, projection).approved:
        return ()
    return tuple(site.plan.comparison.promote)


# --- what was seen and learned before -----------------------------------------------------------------------


def _seen(site: Site, log: RunLog, observed: list[Observed]) -> Seen | None:
    if site.locked is None:
        return None
    was = read_plan(site.store, site.name, site.locked.digest)
    changed = differences(was.plain(), site.plan.plain())
    update = log.state.recorded()
    return Seen(
        update=update if update or observed else None,
        changed={key: (before, after) for key, before, after in changed},
        removed=tuple(name for event in observed for name in event.removed),
    )


Others = Mapping[str, tuple[Lock | None, tuple[object, ...]]]


def _others(site: Site) -> Iterator[tuple[str, tuple[Lock | None, tuple[object, ...]]]]:
    """Every other experiment of the store: its newest lock, and what was learned from it."""
    for name in Root(site.store, time.time).experiments():
        if name == site.name:
            continue
        acts = read_acts(site.store, name)
        lock = None if not acts.locked else read_lock(site.store, name, acts.locked[-1].plan)
        yield name, (lock, acts.learned)


def _looked(site: Site, lock: Lock, others: Others) -> Looked:
    """The runs of this store that have something to do with this plan, however they ended."""
    return Looked(store="this store", runs=tuple(_runs(site, lock, others)))


def _runs(site: Site, lock: Lock, others: Others) -> Iterator[RunSeen]:
    for name, (other, learned) in others.items():
        if other is None or not _related(site, lock, other):
            continue
        log = RunLog(site.store, name, RUN, by="reader")
        log.refresh()
        state = log.state
        ended = state.ended
        concluded = [event for event in learned if isinstance(event, Concluded)]
        cancelled = read_acts(site.store, name).cancelled is not None
        yield RunSeen(
            experiment=name,
            state="cancelled" if cancelled else "running" if ended is None else ended.reason,
            update=state.recorded(),
            updates=other.updates,
            outcome=f"{concluded[-1].outcome}: {concluded[-1].says}" if concluded else None,
        )


def _related(site: Site, lock: Lock, other: Lock) -> bool:
    return (
        str(other.settings.get("decision", "")).lower().split() == site.plan.decision.lower().split()
        or other.data == lock.data
        or str(other.settings.get("recipe")) == site.plan.recipe
        or (site.base is not None and other.name == site.base.experiment)
    )


def _pilot(site: Site, others: Others) -> Pilot | None:
    """A pilot from the same weights that people have concluded something from."""
    for name, (lock, learned) in others.items():
        base = None if lock is None else lock.settings.get("base")
        if lock is None or not isinstance(base, Mapping) or base.get("start") != "pilot":
            continue
        if site.base is None or lock.base is None or lock.base.manifest != site.base.manifest:
            continue
        concluded = [event for event in learned if isinstance(event, Concluded)]
        if concluded:
            last = concluded[-1]
            return Pilot(
                experiment=name,
                updates=lock.updates,
                effect=last.effect or last.says,
                decided=last.outcome in ("better", "worse", "equivalent"),
            )
    return None


def _negatives(site: Site, others: Others) -> Iterator[Negative]:
    """Ideas that came to nothing before, and what this plan has in common with them."""
    wanted = {"decision": decision_digest(site.plan), "contract": digest_of(contract(site.plan))}
    hypothesis = None if site.plan.search is None else site.plan.search.hypothesis
    for name, (_, learned) in others.items():
        for event in learned:
            if not isinstance(event, Concluded) or event.outcome not in ("worse", "equivalent", "invalid"):
                continue
            same = [key for key, digest in wanted.items() if getattr(event, key) == digest]
            if (
                hypothesis is not None
                and event.hypothesis is not None
                and _alike(hypothesis, event.hypothesis)
            ):
                same.append("hypothesis")
            if "contract" in same or "hypothesis" in same:
                yield Negative(experiment=name, concluded=event, same=tuple(same))


def _alike(one: str, other: str) -> bool:
    return one.lower().split() == other.lower().split()
