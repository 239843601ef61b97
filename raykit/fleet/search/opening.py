"""Before a search starts anything: is it over, held, paid for, the same as was registered; then freeze it, and take it.

All that refuses a search happens in `look` and writes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raykit.budget.worst import worst_case, worst_of_rows
from raykit.errors import CorruptError, NotFoundError, PlanError
from raykit.fleet.claim import lock, reviewed
from raykit.fleet.qc.room import require_apart
from raykit.fleet.search.held import drivers_of, require_free, take
from raykit.fleet.search.money import require_table_paid, settle_dead
from raykit.fleet.site import Site, make_ready, task_of
from raykit.fleet.spending import Approving, Spending, approve, open_spending
from raykit.ids import digest_of
from raykit.pauses import Acts, require_running, scopes_of
from raykit.plan import contract
from raykit.plan.tables import Search
from raykit.read.sizing import unit_of
from raykit.records import BY_BUDGET, Locked, SearchRegistration, Unit
from raykit.search import SEARCH, SearchState, pick, rows_of
from raykit.store.log import RunLog
from raykit.store.people import OWN, People
from raykit.store.plans import newest_lock, read_lock
from raykit.store.probe import probe
from raykit.store.search import SearchLog, plan_differences, read_search, register
from raykit.train.inputs import Task
from raykit.train.prepare import Prepared

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A search that nothing refuses."""

    site: Site
    ready: Prepared
    acts: Acts
    registration: SearchRegistration
    state: SearchState | None
    """As its log has it; None if it is not registered yet."""

    @property
    def over(self) -> bool:
        """Every row has its end, it is picked from, and nobody has set aside money for rows that a budget ended."""
        return self.state is not None and is_over(self.state, self.acts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A search that is this process's: what its rows are trained from, and what they spend from."""

    site: Site
    driver: str
    """This process, as the search's log and the leases of its checks name it."""
    task: Task
    """What each row trains, but for its run, its launch and its setting."""
    locked: Locked
    code: Mapping[str, bytes]
    outside: Mapping[str, str]
    """The code that its recipe imports from outside of that, as facts."""
    log: SearchLog
    people: People
    spending: Spending

    @property
    def registration(self) -> SearchRegistration:
        return self.log.registration


def look(
    site: Site,
    people: People,
    *,
    approved: Approving | None,
    deviation: str | None,
    say: Say,
    elsewhere: bool = False,
) -> Looked:
    """Find whatever refuses this search. Writes nothing. `elsewhere`: it would not run on this machine.

    Raises:
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        PlanError: the plan is no search, or its recipe, its params, data or splits are not usable.
        GateError: another search is registered under this name, or checks would share what training holds.
        HeldError: another process that is alive drives it.
        ReviewError: the plan needs revision.
        ApprovalError: a person has to approve this plan first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay for the whole table.
        ReplanError: money has to be moved first.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    search = search_of(site)
    acts = people.refresh()
    scopes = scopes_of(site.name, "search", digest_of(contract(site.plan)))
    state = read_search(site.store, site.name)
    if state is not None:
        ready = make_ready(site)
        # First: no end of a pause helps a search that is another one.
        _require_same(site, ready, search, state.registration)
        require_running(acts, site.name, scopes)
        if not elsewhere:
            require_apart(site.plan)
        require_free(SearchLog(site.store, state.registration, by="reader"))
        return Looked(site=site, ready=ready, acts=acts, registration=state.registration, state=state)
    require_running(acts, site.name, scopes)
    if not elsewhere:
        require_apart(site.plan)
    ready = make_ready(site)
    log = run_log(site)
    ready = reviewed(site, ready, log, approved, deviation, say)
    asked = require_table_paid(site, ready.lock, log, acts, approved, search.rows)
    registration = registration_of(
        site,
        ready,
        search,
        unit=unit_of(site.plan),
        row=worst_case(asked.sizing),
        total=worst_of_rows(asked.sizing),
    )
    return Looked(site=site, ready=ready, acts=acts, registration=registration, state=None)


def _require_same(site: Site, ready: Prepared, search: Search, known: SearchRegistration) -> None:
    """Let only the search go on that is registered.

    Raises:
        GateError: it is another one; with what differs.
        CorruptError: what is registered cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    same = registration_of(site, ready, search, unit=known.unit, row=known.row_worst, total=known.total_worst)
    if same != known:
        register(site.store, same, plan=_changed(site, ready, known))


def _changed(site: Site, ready: Prepared, known: SearchRegistration) -> list[str]:
    """The fields in which the plan differs from that of the search that is registered, as far as that can be read."""
    try:
        before = read_lock(site.store, site.name, known.plan)
    except NotFoundError:
        return []
    return plan_differences(before.settings, ready.lock.settings)


def open_search(
    looked: Looked,
    people: People,
    *,
    approved: Approving | None,
    deviation: str | None,
    name: str | None = None,
) -> Opened:
    """Freeze what the search is made of, register its table, and take it for this process.

    `name` is what its driver is called, unless one of that name was there before.

    Raises:
        CancelledError: the experiment was ended for good meanwhile.
        UnusableRootError: the store cannot be written or trusted.
        GateError: another search was registered under this name meanwhile.
        HeldError: another process was faster.
        ApprovalError: the work is related to another account.
        BudgetError: the plan does not fit under its own ceiling.
        CorruptError: stored bytes do not match their digests.
        UnknownOutcomeError: the reply was lost; the same command goes on.
        StoreUnavailableError: the store did not answer.
    """
    site, ready, log = looked.site, looked.ready, run_log(looked.site)
    probe(site.store)
    lock(site, ready, log, deviation, by="search")
    register(site.store, looked.registration)
    spending = open_spending(site, ready.lock, log, looked.acts)
    if approved is not None:
        approve(site, spending, approved)
    driver = _driver(site, looked.registration, name)
    found = SearchLog(site.store, looked.registration, by=f"search {driver}")
    take(found, driver)
    settle_dead(site, spending, drivers_of(found.entries))
    locked = newest_lock(site.store, site.name)
    if locked is None:
        raise CorruptError(f"{site.name} was locked just now, and is not")
    return Opened(
        site=site,
        driver=driver,
        task=task_of(site, ready),
        locked=locked,
        code=ready.files,
        outside=ready.outside,
        log=found,
        people=people,
        spending=spending,
    )


def _driver(site: Site, registration: SearchRegistration, name: str | None) -> str:
    log = SearchLog(site.store, registration, by="reader")
    log.refresh()
    known = {each.driver for each in drivers_of(log.entries)}
    return secrets.token_hex(6) if name is None or name in known else name


def search_of(site: Site) -> Search:
    """The plan's search.

    Raises:
        PlanError: it has none.
    """
    if site.plan.search is not None:
        return site.plan.search
    raise PlanError(
        f"{site.name} has no [search]: there is one run, and no table of trials",
        field="search",
        rule="a plan with a table [search]",
        remedy="raykit launch PLAN",
    )


def registration_of(
    site: Site, ready: Prepared, search: Search, *, unit: Unit, row: int, total: int
) -> SearchRegistration:
    """What the plan asks to be registered; `row` and `total` are what one row, and all of them, may cost."""
    plan = site.plan
    return SearchRegistration(
        experiment=site.name,
        search=SEARCH,
        plan=ready.lock_sha256,
        contract=digest_of(contract(plan)),
        code=ready.code_sha256,
        data=ready.data_sha256,
        hypothesis=search.hypothesis,
        predicts=search.predicts,
        metric=search.metric,
        mode=search.mode,
        sampler=search.sampler.model_dump(mode="json", exclude_none=True),
        scheduler=None
        if search.scheduler is None
        else search.scheduler.model_dump(mode="json", exclude_none=True),
        space={name: span.model_dump(mode="json", exclude_none=True) for name, span in search.space.items()},
        concurrent=search.concurrent,
        updates=plan.run.updates,
        attempts=plan.run.attempts,
        unit=unit,
        row_worst=row,
        total_worst=total,
        rows=rows_of(search, plan.run.seed),
    )


def is_over(state: SearchState, acts: Acts) -> bool:
    """Whether a search is at its end, and nobody has set aside money for rows that a budget ended."""
    if not state.closed or reopenable(state, acts):
        return False
    return state.picked is not None or pick(state) is None


def reopenable(state: SearchState, acts: Acts) -> tuple[int, ...]:
    """The rows that a budget ended, once a person has ended the pause that followed."""
    cleared_at = acts.cleared_at.get(OWN + state.registration.experiment)
    if cleared_at is None or acts.cancelled is not None:
        return ()
    return tuple(
        row.n
        for row in state.rows
        if row.ended is not None and row.ended.end in BY_BUDGET and (row.ended_at or 0.0) < cleared_at
    )


def run_log(site: Site) -> RunLog:
    """The log of a run that a search does not have: what a launch reads of its own run is empty here."""
    return site.run_log(f"search {secrets.token_hex(3)}")
