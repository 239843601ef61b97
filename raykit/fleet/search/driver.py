"""The process that drives a search: it takes the table, starts a Ray, and has Ray Tune run row after row.

It may die at any instant: rows with an end are never run again, begun ones go on from their last commit under a new
launch, and the next driver decides from the log what this one would have.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from raykit.errors import (
    ApprovalError,
    Broken,
    BudgetError,
    CancelledError,
    FleetPaused,
    RaykitError,
    Refused,
    ReplanError,
    Stopped,
    StoreUnavailableError,
    Unknown,
    UnknownOutcomeError,
)
from raykit.fleet.metrics import Dashboard, Facts, trainers_of
from raykit.fleet.pool.pool import Glance
from raykit.fleet.run_loop import LOOP_S
from raykit.fleet.search.draws import draw
from raykit.fleet.search.ending import Came
from raykit.fleet.search.exchange import Exchange, Ruling
from raykit.fleet.search.hand import Hand
from raykit.fleet.search.heed import Heed
from raykit.fleet.search.job import Report
from raykit.fleet.search.machines import Machines, RayMachines
from raykit.fleet.search.objective import Objective
from raykit.fleet.search.opening import Opened, look, open_search, reopenable
from raykit.fleet.search.outcome import SearchGlimpse, SearchOutcome, facts_of, glimpse_of, outcome_of
from raykit.fleet.search.picking import register_pick
from raykit.fleet.search.rule import Rule
from raykit.fleet.search.table import Table
from raykit.fleet.site import Site
from raykit.fleet.spending import Approving
from raykit.pauses import in_force, scopes_of
from raykit.records import Cause, Picked, Resumed
from raykit.search import Done, SearchState, Start, Wait, run_of, shared_failure, spared_rows
from raykit.store.people import OWN, People, pause

Tell = Callable[[SearchGlimpse], None]
Say = Callable[[str], None]


def search(
    site: Site,
    *,
    tell: Tell,
    say: Say,
    approved: Approving | None = None,
    deviation: str | None = None,
    objective: Objective | None = None,
    name: str | None = None,
    machines: Machines | None = None,
) -> SearchOutcome:
    """Run a search to its end, or go on with it; one that is over is left alone.

    `tell` gets a glimpse every half second, `say` a line at every stage; `approved` is what a person lets it cost, and
    `deviation` what one says of a plan that changed after results were seen. With an `objective` rows are not trained:
    it is called with each row's setting. `name` is what this driver is called, where that was said before it began,
    and `machines` what it runs on instead of a Ray.

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
        UnusableRootError: the store cannot be written or trusted.
        ExactnessError: the resume of a row would be less exact than the plan needs.
        Broken: stored bytes disagree, or another process has taken the search meanwhile.
        Unknown: the store stayed away, a reply was lost, or the local Ray has died: the same command goes on.
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
    """
    people = People(site.store, site.name)
    looked = look(site, people, approved=approved, deviation=deviation, say=say)
    if looked.over:
        assert looked.state is not None
        return outcome_of(looked.state, already=True)
    opened = open_search(looked, people, approved=approved, deviation=deviation, name=name)
    return _Driver(opened, machines or RayMachines(say), tell, say, objective).run()


class _Driver:
    """One process that has the search."""

    def __init__(
        self, opened: Opened, machines: Machines, tell: Tell, say: Say, objective: Objective | None
    ) -> None:
        self._opened = opened
        self._machines = machines
        self._site = opened.site
        self._plan = opened.site.plan
        self._tell = tell
        self._say = say
        self._heed = Heed(opened, say)
        self._table = Table(opened.log, opened.driver)
        self._exchange = Exchange(self._rule())
        self._hand = Hand(
            opened, self._table, self._exchange, told=lambda: self._heed.told, objective=objective, say=say
        )
        self._away_since: float | None = None
        self._rulings: list[Ruling] = []
        """Those that are not written yet."""
        self._glance: Glance | None = None
        self._dashboard = Dashboard(say)

    def run(self) -> SearchOutcome:
        with self._heed.signals.handled() as handle:
            try:
                self._reopen()
                if self._needs_ray():
                    self._open()
                    handle()  # Ray has put its own handlers there
                    while not self._patient_turn():
                        self._exchange.wait(LOOP_S)
                    self._drain()
            finally:
                self._close()
            if self._table.state.closed and self._heed.cancelled is None:
                self._pick()
            self._table.let_go()
        if self._heed.wrong is not None:
            raise self._heed.wrong
        return self._outcome()

    def _rule(self) -> Rule | None:
        search, run = self._plan.search, self._plan.run
        assert search is not None
        if search.scheduler is None:
            return None
        spared = spared_rows(self._opened.registration, first=len(search.first))
        return Rule(
            search.scheduler, mode=search.mode, updates=run.updates, spared=[run_of(row) for row in spared]
        )

    # --- the start ------------------------------------------------------------------------------------------

    def _reopen(self) -> None:
        """Go on with rows that a budget had ended, once a person has ended the pause that followed."""
        rows = reopenable(self._table.state, self._opened.people.acts)
        if not rows:
            return
        scope = OWN + self._site.name
        said = [
            event
            for entry in self._opened.people.log.entries
            for event in entry.events
            if isinstance(event, Resumed) and event.scope == scope
        ]
        reason = said[-1].cleared or "money was moved"
        self._table.reopen(rows, reason=reason, person=said[-1].person)
        what = (
            "1 row that a budget had ended goes"
            if len(rows) == 1
            else f"{len(rows)} rows that a budget had ended go"
        )
        self._say(f"{what} on: {reason}")

    def _needs_ray(self) -> bool:
        """Whether a row has to be trained or examined; whatever else there is to do is done at once."""
        if self._plan.qc is not None:
            return not self._table.state.closed
        while not self._table.state.closed:
            for row in self._table.state.open:
                self._hand.recall(row)
            self._hand.end_ready(waits=False)
            if self._pause_for_defect():
                return False
            step = self._table.ahead(self._hand.rows, draw)
            if not isinstance(step, Start):
                continue
            try:
                self._hand.require_paid(self._table.state.row(step.row))
            except (Stopped, Refused) as refusal:
                if not self._refused(refusal):
                    self._heed.look()
                    return False
            else:
                return True
        return False

    def _open(self) -> None:
        """Start what the rows run on."""
        self._learn()
        self._machines.open(self._opened, self._exchange)
        self._hand.open(self._machines)

    def _learn(self) -> None:
        """Tell the scheduler's rule of every report that the store knows; without one, of those that are to go on."""
        state = self._table.state
        begun = [row for row in state.rows if row.launches]
        rows = begun if state.registration.scheduler is not None else [row for row in begun if not row.ended]
        metric = state.registration.metric.removeprefix("development.")
        for run, each in self._hand.evaluations(rows):
            value = each.metrics.get(metric)
            if value is not None:
                self._exchange.learn(Report(run=run, update=each.update, value=value))

    # --- turns ----------------------------------------------------------------------------------------------

    def _patient_turn(self) -> bool:
        """One turn; while the store does not answer, hold as long as rows do.

        Raises:
            StoreUnavailableError: it stayed away longer than that.
        """
        try:
            done = self._turn()
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._say(f"the store does not answer ({error}); holding")
            if now - self._away_since > self._plan.run.hold_s:
                raise
            return False
        self._away_since = None
        return done

    def _turn(self) -> bool:
        """Observe and act; True once nothing is left to do, or this process was told to leave and nothing is live."""
        self._glance = self._machines.turn()
        self._hand.turn(cancelled=self._heed.cancelled)
        self._heed.look()
        self._rule_on()
        stopping = self._heed.stopping
        if stopping is not None and not self._hand.live:
            self._hand.end_ready(waits=self._waits)
            self._hand.leave_over()
            self._end_cancelled()
            return True
        self._hand.end_ready(waits=self._waits)
        self._tell_glimpse()
        if stopping is not None or self._pause_for_defect():
            return False
        return self._begin_rows()

    @property
    def _waits(self) -> bool:
        """The end of a completed row waits for its own checks: a failed one ends it as failed."""
        return self._plan.qc is not None and self._plan.qc.on_failure == "stop"

    def _rule_on(self) -> None:
        """Write what the scheduler has ruled, then let the rows hear of it."""
        self._rulings += self._exchange.take_rulings()
        while self._rulings:
            ruling = self._rulings[0]
            n = self._table.rule(ruling)
            if n is not None:
                self._hand.rule(n, ruling.why)
                self._say(f"{ruling.report.run} is stopped: {ruling.why}")
            del self._rulings[0]

    def _begin_rows(self) -> bool:
        """Begin as many rows as there is room and money for; True once there is nothing left to begin or to end."""
        while True:
            match self._table.ahead(self._hand.rows, draw):
                case Done():
                    return True
                case Start(n) if len(self._hand.live) < self._machines.most:
                    if not self._begin(n):
                        return False
                case Wait():
                    return not self._hand.busy  # only rows are left that are paused on their own
                case _:
                    return False

    def _begin(self, n: int) -> bool:
        """Begin one row; False if that has to wait."""
        row = self._table.state.row(n)
        if self._hand.recall(row):
            self._hand.end_ready(waits=self._waits)
            return True
        try:
            self._hand.begin(row)
        except (BudgetError, ReplanError, ApprovalError, FleetPaused, CancelledError) as refusal:
            return self._refused(refusal)
        except (Refused, Broken, Unknown) as error:
            self._heed.wrong = error  # raised once the rows that are under way have committed
            return False
        return True

    def _pause_for_defect(self) -> bool:
        """Pause the search where its first rows have failed alike; True if it is paused now."""
        acts, scope = self._opened.people.acts, OWN + self._site.name
        why = shared_failure(self._table.state, since=acts.cleared_at.get(scope, 0.0))
        if why is None:
            return False
        person = f"search {self._opened.driver}"
        pause(self._site.store, scope, cause="defect", reason=why, person=person, at=time.time())
        self._heed.look()
        return True

    # --- money that is short --------------------------------------------------------------------------------

    def _refused(self, refusal: Stopped | Refused) -> bool:
        """Heed why a row may not begin; False while that may change by itself.

        Raises:
            RaykitError: what is not about money or a pause.
        """
        if isinstance(refusal, (FleetPaused, CancelledError)):
            return False  # heard at the next turn
        if not isinstance(refusal, (BudgetError, ReplanError, ApprovalError)):
            raise refusal
        if self._hand.busy:
            return False  # what is under way may cost less than its worst case
        self._end_by_budget(refusal)
        return True

    def _end_by_budget(self, refusal: RaykitError) -> None:
        """No row may begin, and none is under way: those that are left end, until a person has moved money.

        The pause comes first: if this process dies before the ends, they are still open once the pause is over.
        """
        why = str(refusal)
        self._say(f"no row may begin, and none is at work; what is left ends until there is money: {why}")
        cause: Cause = "replan" if isinstance(refusal, ReplanError) else "ceiling"
        scope, person = OWN + self._site.name, f"search {self._opened.driver}"
        pause(self._site.store, scope, cause=cause, reason=why, person=person, at=time.time())
        self._hand.end_open(
            begun=Came(end="censored-by-budget", detail=why),
            waiting=Came(end="refused-by-budget", detail=why),
        )

    def _end_cancelled(self) -> None:
        """A person has ended the search for good."""
        if self._heed.cancelled is not None:
            self._hand.end_open(
                begun=Came(end="censored-by-budget", detail=self._heed.cancelled),
                waiting=Came(end="never-started", detail=self._heed.cancelled),
            )

    # --- the end --------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Once every row has its end, what is still open is examined, within the plan's bound, unless it is paused."""
        self._heed.look()
        if not self._table.state.closed or self._heed.stopping is not None:
            return

        def stop() -> str | None:
            self._heed.look()
            return self._heed.stopping

        def tell(glance: Glance) -> None:
            self._glance = glance
            self._tell_glimpse()

        self._machines.drain(stop, tell)

    def _close(self) -> None:
        """End what the rows run on; then measure those that are cut off."""
        try:
            self._machines.close(leaving=self._heed.signals.come is not None, abandoned=bool(self._hand.live))
        finally:
            self._hand.settle()
            self._hand.let_go()

    def _pick(self) -> None:
        def register(state: SearchState, picked: Picked) -> str | None:
            return register_pick(self._site.store, state, picked, at=time.time())

        self._table.pick(register)

    def _outcome(self) -> SearchOutcome:
        state, machines = self._table.state, self._machines
        return outcome_of(
            state,
            stopped=self._stopped(state),
            cancelled=self._heed.cancelled is not None,
            qc=machines.read(),
            pictures=machines.pictures,
        )

    def _stopped(self, state: SearchState) -> str | None:
        """Why the search is not over, in words; None if it is."""
        if state.closed:
            return self._heed.cancelled
        held = next(iter(self._hand.held.values()), None)
        return self._heed.stopping or held or "rows are left to begin"

    # --- telling --------------------------------------------------------------------------------------------

    def _tell_glimpse(self) -> None:
        live = [each.seen(self._exchange) for each in self._hand.live.values()]
        self._tell(glimpse_of(self._table.state, live, self._glance))
        self._dashboard.tell(self._facts)

    def _facts(self) -> list[Facts]:
        """What the dashboard hears."""
        name, contract = self._site.name, self._opened.registration.contract
        ranks = trainers_of(
            name,
            "search",
            [each.glimpse for each in self._hand.live.values() if each.glimpse is not None],
            workers=self._plan.run.workers,
            pause=in_force(self._opened.people.acts, scopes_of(name, "search", contract)),
            now=time.time(),
        )
        return [facts_of(self._table.state, self._hand.rows, self._exchange.take_heard()), ranks]
