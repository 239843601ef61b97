"""The table of a search as its driver writes it: every event once, however often it is said."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from raykit.fleet.search.ending import Came
from raykit.fleet.search.exchange import Ruling
from raykit.fleet.search.held import let_go, write
from raykit.records import Begun, Drawn, Picked, Record, Reopened, RowEnded, Ruled, SearchRegistration
from raykit.search import (
    Done,
    Draw,
    EndRow,
    RowState,
    SearchState,
    Start,
    Wait,
    next_turn,
    pick,
    row_of,
)
from raykit.store.place import this_place
from raykit.store.search import SearchLog

BATCH: Final = 1_000
"""So many rows end in one entry of the log at most."""


DrawRow = Callable[[SearchState, int], dict[str, Any]]
"""Draws the setting of a row that has none."""


class Table:
    """The log of a search that this driver has taken."""

    def __init__(self, log: SearchLog, driver: str) -> None:
        self._log = log
        self.driver = driver

    @property
    def registration(self) -> SearchRegistration:
        return self._log.registration

    @property
    def state(self) -> SearchState:
        """The table as the log has it."""
        return self._log.state

    def ahead(self, in_hand: Collection[int], draw: DrawRow) -> Start | Wait | Done:
        """What comes next, once everything has been written that needs no work: settings, and rows nobody needs."""
        while True:
            match next_turn(self.state, in_hand):
                case EndRow(n, why):
                    self.end_unbegun([self.state.row(n)], Came(end="never-started", detail=why))
                case Draw(n, None):
                    self._draw(n, draw(self.state, n), by=str(self.registration.sampler["name"]))
                case Draw(n, int(repeats)):
                    params, rank = self.state.row(repeats).params, self.state.row(n).row.rank
                    assert params is not None
                    self._draw(n, params, by=f"rank {rank}", repeats=repeats)
                case Start() | Wait() | Done() as step:
                    return step

    def _draw(self, n: int, params: Mapping[str, Any], *, by: str, repeats: int | None = None) -> None:
        drawn = Drawn(row=n, params=params, by=by, repeats=repeats)
        self._say(lambda: [drawn] if self.state.row(n).params is None else [])

    def begin(self, n: int, launch: str) -> None:
        """Say that a row is begun, or goes on, under a launch whose worst case is reserved."""
        begun = Begun(row=n, launch=launch, place=this_place())

        def decide() -> list[Record]:
            known = [each.launch for each in self.state.row(n).launches]
            return [] if launch in known else [begun]

        self._say(decide)

    def rule(self, ruling: Ruling) -> int | None:
        """Say that the scheduler stops a row; its number, or None if that row has its end already."""
        n = row_of(ruling.report.run)
        if n is None or self.state.row(n).ended is not None:
            return None
        report = ruling.report
        ruled = Ruled(row=n, update=report.update, value=report.value, why=ruling.why)
        self._say(lambda: [ruled] if self.state.row(n).ruled is None else [])
        return n

    def end(self, event: RowEnded) -> None:
        """Say how a row has ended."""
        self._say(lambda: [event] if self.state.row(event.row).ended is None else [])

    def end_unbegun(self, rows: Sequence[RowState], came: Came) -> None:
        """Say that rows that were never begun have ended, all of them alike."""
        for first in range(0, len(rows), BATCH):
            ended = [
                RowEnded(row=row.n, end=came.end, update=0, cost=0, attempts=0, detail=came.detail)
                for row in rows[first : first + BATCH]
            ]
            self._say(partial(self._still_open, ended))

    def _still_open(self, ended: Sequence[RowEnded]) -> list[RowEnded]:
        return [each for each in ended if self.state.row(each.row).ended is None]

    def reopen(self, rows: Sequence[int], *, reason: str, person: str) -> None:
        """Say that a person goes on with rows that a budget had ended."""
        event = Reopened(rows=tuple(rows), reason=reason, person=person)
        self._say(lambda: [event] if self.state.row(rows[0]).ended is not None else [])

    def pick(self, register: Callable[[SearchState, Picked], str | None]) -> Picked | None:
        """Pick what was observed to be best, once every row has its end; None if no row has its say."""
        if self.state.picked is not None:
            return self.state.picked
        found = pick(self.state)
        if found is None:
            return None
        picked = found.model_copy(update={"candidate": register(self.state, found)})
        self._say(lambda: [picked] if self.state.picked is None else [])
        return self.state.picked

    def let_go(self) -> None:
        """Let go of the search."""
        let_go(self._log, self.driver)

    def _say(self, decide: Callable[[], Sequence[Record]]) -> None:
        write(self._log, self.driver, decide)
