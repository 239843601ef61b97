"""A search in a store, without training anything: its registered table, its log, and a run for every row that began.

    maker = SearchMaker(store)                  # 8 trials and 4 repeats of the best two
    maker.register()
    maker.begin(1); maker.train(1, 40); maker.finish(1)            # completed, with the value that its setting gives
    maker.begin(2); maker.train(2, 10); maker.finish(2, "stopped-by-scheduler")
    maker.never(3, "refused-by-budget")
    maker.pick()
    make_search(store)                          # all of that, and every end that there is but those by the budget
    make_going(store)                           # half of it: three rows ended, two at work

Nothing in it is random. What a row comes to is a function of its setting: the best `lr` is 0.003.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from makebudget import PaidByNode, usd
from makerun import ELSEWHERE, START_AT

from raykit.budget.amounts import worst_of
from raykit.records import (
    BY_BUDGET,
    Begun,
    Drawn,
    End,
    EndReason,
    Picked,
    Place,
    Record,
    Reopened,
    Reserved,
    RowEnded,
    Ruled,
    SearchEntry,
    SearchRegistration,
    Setting,
    TableRow,
    Terms,
)
from raykit.search import fold, pick
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log
from raykit.store.place import this_place
from raykit.store.search import register

SEARCH = "main"
HOURS = 0.4
"""What a row takes that goes through all of its updates."""
RATES = (0.001, 0.0003, 0.02, 0.003, 0.05, 0.002, 0.0001, 0.006)
WIDTHS = (32, 64, 16)

TABLE = """
[search]
hypothesis = "The rate was tuned for a longer run; a higher one reaches as far in fewer updates."
predicts   = "If true, the ratio falls with lr above 0.001; if false it is flat."
sampler    = {{ name = "{sampler}", seed = 7 }}
trials     = {trials}
{repeats}concurrent = {concurrent}
scheduler  = {{ name = "asha", grace_updates = 10, reduction = 3 }}
metric     = "development.ratio"
mode       = "min"
first      = [{{ lr = 0.001, width = 32 }}]

[search.space]
lr    = {{ loguniform = [1e-4, 5e-2] }}
width = {{ choice = [16, 32, 64] }}
"""


def value_of(params: Mapping[str, Any], seed: int) -> float:
    """What a setting comes to in the end."""
    distance = math.log10(params["lr"] / 0.003)
    return round(0.2 + 0.05 * distance**2 - 0.0001 * params["width"] + 0.003 * (seed - 3), 6)


class Trial(PaidByNode):
    """The run of one row."""

    rate = "2.99"
    ceiling = "60"
    lines = (("train", "target", "41.44"),)
    confirmation = "3.45"
    expected = "20"
    by_data = True
    table = ""
    final = 0.2
    """What it comes to once it has seen everything."""

    @property
    def prefix(self) -> str:  # type: ignore[override]
        return f"{self.experiment}-{self.run}-"

    def plan_file(self) -> bytes:
        return super().plan_file().replace(b"wall_h           = 10", b"wall_h           = 0.6") + (
            self.table.encode()
        )

    def begin(self, *, hours: float = 0.6, **options: Any) -> int:
        self.lease = f"{self.name}-1"
        self.ledger.refresh()  # others of the search spend from it too
        terms = Terms(
            accelerators=1,
            rate=usd(self.rate),
            source="invoice 2026-10",
            time_ms=int(hours * 3_600_000),
            margin_permille=1050,
        )
        reserved = Reserved(
            lease=self.lease,
            experiment=self.experiment,
            line="train",
            worst=worst_of(terms),
            terms=terms,
            charged=self.ledger.book.charged,
            below=usd(self.ceiling),
            projection=self.projection,
            run=self.run,
        )
        self.decide(lambda book: reserved)
        return super(PaidByNode, self).begin(lease=self.lease, **options)

    def train(self, updates: int, *, nonfinite: bool = False) -> None:
        """So many updates more, with an evaluation and a checkpoint at every tenth."""
        for _ in range(updates // 10):
            self.rows(10, nonfinite=nonfinite)
            self.ratios = {**self.ratios, self.update: self.reported(self.update)}
            self.look()
            self.commit("final" if self.update == self.updates else "cadence")
        self.rows(updates % 10)
        self.flush()

    def reported(self, update: int) -> float:
        """The development ratio at an update."""
        return round(self.final + (1 - self.final) * math.exp(-update / 6), 6)


class SearchMaker:
    """Writes one search, step by step, as its driver would. `at` is the time of the next entry."""

    mode = "min"
    metric = "development.ratio"
    place: Place = ELSEWHERE

    def __init__(
        self,
        store: ObjectStore,
        *,
        experiment: str = "lr-search",
        trials: int = 8,
        top: int = 2,
        seeds: tuple[int, ...] = (4, 5),
        concurrent: int = 2,
        updates: int = 40,
        sampler: str = "random",
        rate: str = "2.99",
        at: float = START_AT,
    ) -> None:
        self.store = store
        self.experiment = experiment
        self.trials, self.top, self.seeds = trials, top, seeds
        self.concurrent = concurrent
        self.updates = updates
        self.sampler = sampler
        self.rate = rate
        self.at = at
        self.runs: dict[int, Trial] = {}
        self.ends: dict[int, RowEnded] = {}
        self.settings: dict[int, Setting] = {}
        self.same: dict[int, int] = {}
        """By repeat: the trial that it repeats."""
        self.log: Log[SearchEntry] = Log(
            store, layout.search_log(experiment, SEARCH), SearchEntry, by="maker"
        )

    # --- the table ------------------------------------------------------------------------------------------

    def register(self) -> SearchRegistration:
        """The plan, its money, and the table."""
        first = self._trial(1)
        locked = first.lock_plan()
        first.approve("60")
        self.registration = SearchRegistration(
            experiment=self.experiment,
            search=SEARCH,
            plan=locked.plan,
            contract=locked.contract,
            code=locked.code,
            data=locked.data,
            hypothesis="The rate was tuned for a longer run; a higher one reaches as far in fewer updates.",
            predicts="If true, the ratio falls with lr above 0.001; if false it is flat.",
            metric=self.metric,
            mode=self.mode,
            sampler={"name": self.sampler, "seed": 7},
            scheduler={"name": "asha", "grace_updates": 10, "reduction": 3},
            space={"lr": {"loguniform": [1e-4, 5e-2]}, "width": {"choice": [16, 32, 64]}},
            concurrent=self.concurrent,
            updates=self.updates,
            attempts=3,
            unit="usd",
            row_worst=usd("3.45") if self.rate != "0" else 0,
            total_worst=usd("3.45") * len(self.table) if self.rate != "0" else 0,
            rows=self.table,
        )
        register(self.store, self.registration)
        return self.registration

    @property
    def table(self) -> tuple[TableRow, ...]:
        """Trials, then repeats by rank and seed. Those of a sampler that learns have no setting yet."""
        learns = self.sampler == "optuna.tpe"
        rows = [
            TableRow(row=n, seed=3, params=None if learns and n > 1 else self._params(n))
            for n in range(1, self.trials + 1)
        ]
        for rank in range(1, self.top + 1):
            for seed in self.seeds:
                rows.append(TableRow(row=len(rows) + 1, kind="repeat", seed=seed, rank=rank))
        return tuple(rows)

    def _params(self, row: int) -> dict[str, Any]:
        """Of a trial; the rates come again after eight."""
        return {"lr": RATES[(row - 1) % len(RATES)], "width": WIDTHS[(row - 1) % len(WIDTHS)]}

    def _trial(self, row: int) -> Trial:
        if row not in self.runs:
            run = Trial(
                self.store,
                experiment=self.experiment,
                run=f"trial-{row:03d}",
                updates=self.updates,
                place=self.place,
                at=self.at,
            )
            again = f"repeats    = {{ top = {self.top}, seeds = {list(self.seeds)} }}\n" if self.top else ""
            run.rate = self.rate
            run.table = TABLE.format(
                sampler=self.sampler, trials=self.trials, repeats=again, concurrent=self.concurrent
            )
            self.runs[row] = run
        return self.runs[row]

    # --- rows -----------------------------------------------------------------------------------------------

    def draw(self, row: int, params: Mapping[str, Any] | None = None, *, repeats: int | None = None) -> None:
        """The setting of a row that had none."""
        found = dict(params or (self.settings[repeats].params if repeats else self._params(row)))
        by = self.sampler if repeats is None else f"rank {self.table[row - 1].rank}"
        self.say(Drawn(row=row, params=found, by=by, repeats=repeats))
        self.settings[row] = Setting(params=found, seed=self.table[row - 1].seed)
        if repeats is not None:
            self.same[row] = repeats

    def begin(self, row: int) -> Trial:
        """A launch of the search begins a row, or goes on with it."""
        registered = self.table[row - 1]
        if row not in self.settings:
            assert registered.params is not None, f"row {row} has to be drawn first"
            self.settings[row] = Setting(params=registered.params, seed=registered.seed)
        run, setting = self._trial(row), self.settings[row]
        run.place, run.at = self.place, max(run.at, self.at)
        first = not run.launches
        run.setting, run.final = setting, value_of(setting.params, setting.seed)
        if first:
            run.freeze()
        self.say(Begun(row=row, launch=f"{run.prefix}launch-{run.launches + 1}", place=self.place))
        run.launch()
        run.begin()
        self.at = max(self.at, run.at)
        return run

    def train(self, row: int, updates: int) -> None:
        run = self.runs[row]
        run.at = max(run.at, self.at)
        run.train(updates)
        self.at = run.at

    def pause(self, row: int, *, hours: float = 0.1) -> None:
        """The row commits, releases, and is not at its end."""
        self._stop(row, "paused", hours)

    def rule(self, row: int, why: str = "below the top third at update 10") -> None:
        """The scheduler stops a row."""
        run = self.runs[row]
        self.say(Ruled(row=row, update=run.update, value=run.reported(run.update), why=why))

    def finish(
        self,
        row: int,
        end: End = "completed",
        *,
        hours: float | None = None,
        detail: str | None = None,
        finite: bool = True,
    ) -> RowEnded:
        """A row that began has come to its end, and its money is settled."""
        run = self.runs[row]
        share = run.update / self.updates
        reason: EndReason = {"completed": "completed", "failed": "failed"}.get(end, "paused")  # type: ignore[assignment]
        self._stop(row, reason, max(0.05, HOURS * share) if hours is None else hours, detail)
        at = run.update // 10 * 10
        commit = next((c for c in reversed(run.log.state.commits) if c.update == at), None)
        known = finite and end not in ("failed",) and at > 0
        return self._ended(
            RowEnded(
                row=row,
                end=end,
                update=run.update,
                value=run.reported(at) if known else None,
                at=at if known else None,
                checkpoint=commit.sha256 if known and commit else None,
                cost=self.cost(row),
                attempts=len(run.log.state.attempts),
                detail=detail,
            )
        )

    def never(self, row: int, end: End = "never-started", *, detail: str | None = None) -> RowEnded:
        """A row that never began has come to its end."""
        return self._ended(RowEnded(row=row, end=end, update=0, cost=0, attempts=0, detail=detail))

    def reopen(self, *, reason: str = "the ceiling was raised", person: str = "mira") -> None:
        """Rows that a budget had ended go on."""
        rows = tuple(row for row, ended in sorted(self.ends.items()) if ended.end in BY_BUDGET)
        self.say(Reopened(rows=rows, reason=reason, person=person))
        for row in rows:
            del self.ends[row]

    def pick(self, *, candidate: str | None = None) -> Picked:
        """The best of what was observed."""
        found = pick(fold(self.registration, self.log.entries), candidate=candidate)
        assert found is not None
        self.say(found)
        return found

    def cost(self, row: int) -> int:
        """What all attempts of a row have come to, as the ledger has it."""
        own = (self.experiment, self.runs[row].run)
        leases = self.runs[row].ledger.book.leases.values()
        return sum(each.charged for each in leases if (each.reserved.experiment, each.reserved.run) == own)

    def say(self, *events: Record) -> None:
        """Append to the log of the search."""
        self.log.append(lambda entries: events, at=self._tick())

    # --- inside ---------------------------------------------------------------------------------------------

    def _stop(self, row: int, reason: EndReason, hours: float, detail: str | None = None) -> None:
        run = self.runs[row]
        run.at = max(run.at, self.at)
        run.end(reason, detail=detail, hours=hours)
        run.release(reason)
        self.at = run.at

    def _ended(self, event: RowEnded) -> RowEnded:
        self.ends[event.row] = event
        self.say(event)
        return event

    def _tick(self) -> float:
        self.at += 60.0
        return self.at


def run_row(maker: SearchMaker, row: int, end: End = "completed", *, updates: int = 40, **how: Any) -> None:
    """A row from its beginning to its end."""
    maker.begin(row)
    if not how.get("finite", True):
        maker.runs[row].final = math.nan
    maker.train(row, updates)
    if end == "stopped-by-scheduler":
        maker.rule(row)
    maker.finish(row, end, **how)


def make_search(
    store: ObjectStore, *, name: Callable[[SearchMaker], str] | None = None, **traits: Any
) -> SearchMaker:
    """A search that is over: 12 rows, of which 7 completed, one without a finite value, 2 were stopped by the
    scheduler, 1 failed, 2 never started; and a pick. `name` gives its candidate a name."""
    maker = SearchMaker(store, **traits)
    maker.register()
    for row in (1, 2, 4, 6):
        run_row(maker, row)
    for row in (3, 7):
        run_row(maker, row, "stopped-by-scheduler", updates=10)
    run_row(maker, 5, "failed", updates=4, detail="the loss is not finite at update 4")
    run_row(maker, 8, finite=False)
    for row, again in ((9, 4), (10, 4)):
        maker.draw(row, repeats=again)
        run_row(maker, row)
    for row in (11, 12):
        maker.never(row, detail="nobody needed it any more")
    maker.pick(candidate=None if name is None else name(maker))
    return maker


def make_going(store: ObjectStore, *, rows: Sequence[int] = (4, 5), **traits: Any) -> SearchMaker:
    """A search in the middle: rows 1 to 3 have ended, `rows` are at work, here in this process."""
    maker = SearchMaker(store, **traits)
    maker.place = this_place()
    maker.register()
    run_row(maker, 1)
    run_row(maker, 2)
    run_row(maker, 3, "stopped-by-scheduler", updates=10)
    for row in rows:
        maker.begin(row)
        maker.train(row, 24)
    return maker
