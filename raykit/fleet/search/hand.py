"""The rows that a search has in hand: begun one by one, turned together, ended one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from raykit.fleet.search.ending import Came, came_to, row_ended
from raykit.fleet.search.exchange import Exchange
from raykit.fleet.search.machines import Checks, Machines
from raykit.fleet.search.money import cost_of_row, require_row_paid, site_log
from raykit.fleet.search.objective import Objective
from raykit.fleet.search.opening import Opened
from raykit.fleet.search.row import Heard, LiveRow, evaluations_of, worth
from raykit.fleet.search.table import Table
from raykit.records import EvaluationRow
from raykit.search import RowState, unreported

Say = Callable[[str], None]


class Hand:
    """Every row that is live, and those whose run is over and whose end is not written yet."""

    def __init__(
        self,
        opened: Opened,
        table: Table,
        exchange: Exchange,
        *,
        told: Callable[[], str | None],
        objective: Objective | None,
        say: Say,
    ) -> None:
        """`told` says why the whole search stops, if it does."""
        self._opened = opened
        self._table = table
        self._exchange = exchange
        self._told = told
        self._objective = objective
        self._say = say
        self._machines: Machines | None = None
        """What rows run on, once it is open."""
        self.live: dict[int, LiveRow] = {}
        self._over: dict[int, Came] = {}
        self.held: dict[int, str] = {}
        """Rows that are paused on their own: the search goes on without them."""
        self._last: LiveRow | None = None

    @property
    def rows(self) -> Collection[int]:
        """The numbers of all that nobody else may begin."""
        return {*self.live, *self._over, *self.held}

    @property
    def busy(self) -> bool:
        """Something is under way, or about to be written."""
        return bool(self.live or self._over)

    # --- beginning ------------------------------------------------------------------------------------------

    def open(self, machines: Machines) -> None:
        """Say what rows run on, once it is open."""
        self._machines = machines

    @property
    def _checks(self) -> Checks | None:
        return None if self._machines is None else self._machines.checks

    def recall(self, row: RowState, *, cancelled: str | None = None) -> bool:
        """Whether a row that was begun needs no more work: its run is over, and it only has to be told."""
        came = None
        if row.launches:
            came = came_to(row, site_log(self._opened.site, row.run).state, cancelled=cancelled)
        if came is not None:
            self._over[row.n] = came
        return came is not None

    def require_paid(self, row: RowState) -> None:
        """Let only a row begin that the door would let through. Writes nothing.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            CorruptError: the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        require_row_paid(self._opened.spending, row.run, self._opened.people.acts)

    def begin(self, row: RowState) -> None:
        """Begin a row, or go on with it, once its worst case is reserved.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            HeldError: another launch that is alive holds its run.
            ExactnessError: the resume would be less exact than the plan needs.
            Broken: stored bytes disagree.
            Unknown: the store did not answer.
        """
        self.require_paid(row)
        heard = Heard(run=row.run, told=self._told, checks=self._checks)
        live = LiveRow(
            self._opened,
            row,
            self._exchange,
            heard,
            objective=self._objective,
            say=lambda line: self._say(f"{row.run}: {line}"),
        )
        live.loop.reserve()
        self._table.begin(row.n, live.launch)
        machines = self._machines
        assert machines is not None, "not open"
        live.loop.open(storage=machines.storage, door=machines.door(live.loop.purse))
        self.live[row.n] = live

    def evaluations(self, rows: Iterable[RowState]) -> list[tuple[str, EvaluationRow]]:
        """What the runs of rows have come to so far, in the order of updates.

        Raises:
            CorruptError: a run's log or its rows are damaged.
            StoreUnavailableError: the store did not answer.
        """
        site = self._opened.site
        found = [
            (row.run, each)
            for row in rows
            for each in evaluations_of(site.store, site_log(site, row.run).state)
        ]
        return sorted(found, key=lambda each: (each[1].update, each[0]))

    # --- turning --------------------------------------------------------------------------------------------

    def turn(self, *, cancelled: str | None) -> None:
        """Let every live row take its turn; those that have let go are measured, and told apart.

        Raises:
            RaykitError: what ends the whole search: a damaged store, one that stays away, another driver.
        """
        for n, live in list(self.live.items()):
            live.done = live.done or live.loop.turn()
            if not live.done or live.loop.settle() is None:
                continue  # under way; or what it has cost could not be written, and is tried again
            came = live.came(self._table.state.row(n), cancelled=cancelled)
            if came is not None:
                self._over[n] = came
            elif self._told() is None and live.loop.paused is not None:
                self.held[n] = live.loop.paused
            self._last = live
            del self.live[n]

    def rule(self, n: int, why: str) -> None:
        """Let a row hear that the scheduler stops it."""
        if n in self.live:
            self.live[n].heard.ruled = why

    # --- ending ---------------------------------------------------------------------------------------------

    def end_ready(self, *, waits: bool) -> None:
        """Write the ends of rows whose run is over; with `waits`, of completed ones only after their own checks.

        Raises:
            CorruptError: a log, or the rows of a run, are damaged.
            FencedError: another process has taken the search.
            Unknown: the store did not answer.
        """
        for n, came in list(self._over.items()):
            row = self._table.state.row(n)
            checks = self._checks
            if came.end == "completed" and checks is not None and waits:
                failed = checks.ends(row.run)
                if failed is not None:
                    came = Came(end="failed", detail=failed)
                elif checks.open_of(row.run):
                    continue
            self.end(row, came)
            del self._over[n]

    def leave_over(self) -> None:
        """Leave the ends that wait for a check to another time: their runs say what they came to."""
        self._over.clear()

    def end(self, row: RowState, came: Came) -> None:
        """Write the end of one row that was begun.

        Raises:
            CorruptError: a log, or the rows of its run, are damaged.
            FencedError: another process has taken the search.
            Unknown: the store did not answer.
        """
        site, spending, metric = self._opened.site, self._opened.spending, self._table.registration.metric
        run = site_log(site, row.run).state
        if came.end == "completed" and (lacks := unreported(metric, evaluations_of(site.store, run))):
            came = Came(end="failed", detail=lacks)  # it was through before anyone could stop it
        spending.ledger.refresh()
        cost = cost_of_row(spending.ledger.book, site.name, row.run)
        event = row_ended(row, came, worth(site.store, site.plan, metric, run), run, cost=cost)
        self._table.end(event)
        value = "" if event.value is None else f", {metric.removeprefix('development.')} {event.value:.6g}"
        detail = "" if came.detail is None else f": {came.detail}"
        self._say(f"{row.run} {came.end} at update {event.update:,}{value}{detail}")

    def end_open(self, *, begun: Came, waiting: Came) -> None:
        """Write the ends of all rows that have none, now that none is under way.

        Raises:
            CorruptError: a log, or the rows of a run, are damaged.
            FencedError: another process has taken the search.
            Unknown: the store did not answer.
        """
        rows = self._table.state.open
        for row in (row for row in rows if row.launches):
            self.end(row, begun)
        self._table.end_unbegun([row for row in rows if not row.launches], waiting)

    def settle(self) -> None:
        """Say what rows have cost that are cut off, now that their Ray is gone."""
        for live in self.live.values():
            live.loop.settle()
            self._last = live

    def let_go(self) -> None:
        """See to machines that are billed whether or not anyone works on them, now that no row does."""
        if self._last is not None:
            self._last.loop.let_go()
