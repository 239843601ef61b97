"""A search as people look at it: its table, how far each row is, who is waited for, and the pick.

Nothing is read here: `raykit.read.search.reader` fills these in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from raykit.budget.lines import TRAIN
from raykit.errors import InvalidInput
from raykit.pauses import MONEY_CAUSES, InForce, way_on
from raykit.read.money import Money
from raykit.read.search.row import AT_WORK, ENDS, UNBEGUN, Live, RowRead, RowStatus, SearchHealth
from raykit.read.search.table import arrow_of
from raykit.read.search.verdict import Verdict
from raykit.records import BY_BUDGET, Cancelled, Excluded, Picked, Place, SearchRegistration, Unit

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SearchState = Literal[
    "registered", "running", "pausing", "paused", "stopped", "out of budget", "complete", "cancelled"
]
"""`stopped`: rows are open, and nobody is at them. `out of budget`: every row has ended, some because of money."""

MOST_NAMED = 12
"""So many rows are named in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickDue:
    """What the examinations of the picked trial wait for, once the search is complete."""

    run: str
    unreviewed: int
    """Its checkpoints that no person has looked at."""
    others: int
    """Those of other rows: nothing waits for them."""
    command: str

    @property
    def words(self) -> str:
        """What is due, in one sentence."""
        what = "is not examined to its end" if not self.unreviewed else f"has {self.unreviewed:,} to review"
        others = f"; the {self.others:,} of other rows may be reviewed too" if self.others else ""
        return f"is complete, and the QC of its pick, {self.run}, {what}{others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRead:
    """One search at one moment."""

    registration: SearchRegistration
    digest: str
    """Of what was registered."""
    decision: str | None = None
    """The decision of its plan, where its lock can be read."""
    state: SearchState
    rows: tuple[RowRead, ...]
    picked: Picked | None = None
    verdict: Verdict | None = None
    """None as long as nothing is picked, or where the plan names no incumbent."""
    incumbent: int | None = None
    """The row of the setting that is used today: the first that the plan names, if it names any."""
    worthwhile: float | None = None
    """The difference that would change what is done, if the plan says it of this very metric."""
    cost: int = 0
    """Micro-units, of all rows and attempts so far, what is open at its worst case."""
    money: Money | None = None
    """Of its whole experiment; None if it has no budget yet."""
    place: Place | None = None
    """The process that drives it, while one does."""
    launches: tuple[str, ...] = ()
    """Of rows that are at work, and of what their driver does beside them."""
    pause: InForce | None = None
    cancelled: Cancelled | None = None
    qc: Mapping[str, int] | None = None
    """Examinations of all its rows: `passed`, `failed`, `open`, `unreviewed`; None without `[qc]`."""
    pick_due: PickDue | None = None
    """What its pick still needs, of a search that is complete."""
    shortfall: str | None = None
    """Why money ended rows, in words."""
    now: float = 0.0

    # --- names ----------------------------------------------------------------------------------------------

    @property
    def experiment(self) -> str:
        return self.registration.experiment

    @property
    def metric(self) -> str:
        """The metric without its split, which is always development."""
        return self.registration.metric.removeprefix("development.")

    @property
    def unit(self) -> Unit:
        return self.registration.unit

    # --- how far it is --------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counter[RowStatus]:
        """How many rows there are of each status."""
        return Counter(row.status for row in self.rows)

    @property
    def done(self) -> int:
        """Rows that have an end."""
        return sum(row.ended for row in self.rows)

    @property
    def progress(self) -> str:
        """`9/12 trials`."""
        return f"{self.done:,}/{len(self.rows):,} trials"

    @property
    def summary(self) -> str:
        """`12 rows: 6 completed, 2 stopped-by-scheduler, 1 failed, 3 never-started`."""
        counts = self.counts
        order: tuple[RowStatus, ...] = (*ENDS, *get_args(Live), "waiting")
        parts = [f"{counts[status]:,} {status}" for status in order if counts[status]]
        rows = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        return f"{rows}: {', '.join(parts)}"

    @property
    def at_work(self) -> tuple[RowRead, ...]:
        return tuple(row for row in self.rows if row.status in AT_WORK)

    @property
    def best(self) -> RowRead | None:
        """The completed row with the best value so far; the pick is made of settings, and only once all have ended."""
        found = [row for row in self.rows if row.counts]
        return min(found, key=lambda row: (self.order(row.value), row.row)) if found else None

    def order(self, value: float | None) -> float:
        """What sorts values, the best first."""
        if value is None:
            return float("inf")
        return value if self.registration.mode == "min" else -value

    def row(self, n: int) -> RowRead:
        """Row `n` of the table.

        Raises:
            InvalidInput: there is none.
        """
        if not 1 <= n <= len(self.rows):
            raise InvalidInput(
                f"{self.experiment} has no row {n}",
                field="--trial",
                value=n,
                rule=f"1 to {len(self.rows)}",
                remedy=f"raykit search status {self.experiment}",
            )
        return self.rows[n - 1]

    # --- who is waited for ----------------------------------------------------------------------------------

    @property
    def driven(self) -> bool:
        """A process drives it, or one of its rows is at work."""
        return self.place is not None or bool(self.at_work)

    @property
    def live(self) -> bool:
        """A process is at it."""
        return self.state in ("running", "pausing")

    @property
    def complete(self) -> bool:
        """Every row has its end, none for want of money, and what can be picked is."""
        return self.state == "complete"

    @property
    def health(self) -> SearchHealth:
        """The worst of the rows that are open; a person who is waited for before that."""
        if self.waits_for == "a person":
            return "needs you"
        found = {row.health for row in self.rows if not row.ended}
        order: tuple[SearchHealth, ...] = ("corrupt", "nonfinite", "undefined", "collapsed", "silent")
        return next((each for each in order if each in found), "ok")

    @property
    def words(self) -> str:
        """Its state as people read it."""
        match self.state:
            case "registered":
                return "registered, and no row has begun"
            case "paused" | "pausing" if self.pause is not None:
                return f"{self.state}: {self.pause.pause.person}: {self.pause.pause.reason}"
            case "stopped" if self.done == len(self.rows):
                return "every row has ended; the pick is not made yet"
            case "stopped":
                left = len(self.rows) - self.done
                what = "1 row is open, and nobody is at it"
                return f"stopped: {what if left == 1 else f'{left:,} rows are open, and nobody is at them'}"
            case "out of budget":
                return f"out of budget: {self.shortfall}" if self.shortfall else "out of budget"
            case "cancelled" if self.cancelled is not None:
                return self.cancelled.words
            case "complete" if self.picked is None:
                return "complete: no row can be picked"
            case _:
                return self.state

    @property
    def waits_for(self) -> Literal["a person", "a launch"] | None:
        """Who has to do something; None if nobody has."""
        match self.state:
            case "paused" | "out of budget":
                return "a person"
            case "complete" if self.pick_due is not None:
                return "a person"
            case "registered" | "stopped":
                return "a launch"
            case _:
                return None

    @property
    def spent(self) -> int:
        """Micro-units, of all rows and attempts as far as they have come; `cost` has those at work at their worst."""
        return self.cost - sum(row.cost - row.spent for row in self.rows)

    @property
    def commands(self) -> tuple[str, ...]:
        """What goes on with it, one command after the other; none where nothing has to be done."""
        replan = (f"raykit budget replan {self.experiment} --reason ... --by NAME",) * (not self.paid)
        match self.state:
            case "registered" | "stopped":
                return (self.resume,)
            case "out of budget":
                return (*replan, self.resume)
            case "complete" if self.pick_due is not None:
                return (self.pick_due.command,)
            case "paused" if self.pause is not None:
                pays = replan if self.pause.pause.cause in MONEY_CAUSES else ()
                wide = not self.pause.pause.scope.startswith("experiment:")
                return (*pays, way_on(self.pause), *([self.resume] if wide else []))
            case _:
                return ()

    @property
    def resume(self) -> str:
        """The command that goes on with it; rows that a budget has ended are opened again by a named person."""
        by = " --by NAME" if any(row.status in BY_BUDGET for row in self.rows) else ""
        return f"raykit resume {self.experiment}{by}"

    @property
    def paid(self) -> bool:
        """Whether money for another row is there, as far as the ledger tells it at a glance."""
        money, worst = self.money, self.registration.row_worst
        if (
            money is None
            or money.overrun
            or any(each.rate > (each.planned or each.rate) for each in money.rates)
        ):
            return False
        cap = money.autonomous if money.figure is None else money.figure
        line = next((each.remaining for each in money.lines if each.line == TRAIN), 0)
        return worst <= min(line, money.remaining, cap - money.account_charged)

    # --- the pick -------------------------------------------------------------------------------------------

    @property
    def excluded(self) -> tuple[Excluded, ...]:
        """Rows that the pick left out, each with why."""
        return () if self.picked is None else self.picked.excluded

    @property
    def left_out(self) -> dict[str, str]:
        """Why rows were left out of the pick, and which: `rows 3, 7`."""
        found: dict[str, list[int]] = {}
        for each in self.excluded:
            found.setdefault(each.why, []).append(each.row)
        return {why: _rows(rows) for why, rows in found.items()}

    @property
    def pick_words(self) -> str | None:
        """The pick in one line; None without one."""
        if self.picked is None:
            return None
        values = self.picked.values
        over = f", the mean of {len(values)} seeds" if len(values) > 1 else ""
        return f"row {self.picked.row}: {self.metric} {self.picked.value:.4g}{over}, {self.picked_of}"

    @property
    def picked_of(self) -> str:
        """`of 12 rows registered, 10 tried, 3 of them excluded`: a row that never began says nothing of its setting."""
        tried = [row.row for row in self.rows if row.status != "waiting" and row.status not in UNBEGUN]
        out = len({each.row for each in self.excluded}.intersection(tried))
        return f"of {len(self.rows):,} rows registered, {len(tried):,} tried, {out:,} of them excluded"

    # --- as data --------------------------------------------------------------------------------------------

    def brief(self) -> dict[str, Any]:
        """How far it is, as JSON values, without its rows."""
        best = self.best
        return {
            "experiment": self.experiment,
            "search": self.registration.search,
            "state": self.state,
            "words": self.words,
            "health": self.health,
            "waits_for": self.waits_for,
            "commands": list(self.commands),
            "rows_total": len(self.rows),
            "rows_ended": self.done,
            "counts": dict(self.counts),
            "metric": self.registration.metric,
            "mode": self.registration.mode,
            "best": None if best is None else {"row": best.row, "value": best.value},
            "incumbent": self.incumbent,
            "worthwhile": self.worthwhile,
            "picked": self.picked and self.picked.plain(),
            "verdict": self.verdict and self.verdict.plain(),
            "unit": self.unit,
            "cost": self.cost,
            "so_far": self.spent,
            "money": self.money and self.money.plain(),
            "row_worst": self.registration.row_worst,
            "total_worst": self.registration.total_worst,
            "qc": None if self.qc is None else dict(self.qc),
            "paused": self.pause and {**self.pause.pause.plain(), "at": self.pause.at},
            "cancelled": self.cancelled and self.cancelled.plain(),
        }

    def plain(self) -> dict[str, Any]:
        """The whole of it as JSON values."""
        said = self.registration.plain()
        del said["rows"]
        return {
            **self.brief(),
            "registration": {**said, "digest": self.digest},
            "decision": self.decision,
            "rows": [row.plain() for row in self.rows],
        }

    def to_arrow(self) -> pa.Table:
        """The table of trials as an Arrow table; a parameter is the column `params.<name>`."""
        return arrow_of([row.plain() for row in self.rows])

    def to_pandas(self) -> pd.DataFrame:
        """The table of trials as a pandas frame, with the columns of `to_arrow`.

        Raises:
            InvalidInput: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: F401
        except ImportError as error:
            raise InvalidInput(
                "pandas is not installed", remedy="pip install pandas, or use to_arrow() or rows"
            ) from error
        return self.to_arrow().to_pandas()


def _rows(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:MOST_NAMED]))
    more = f" and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
    return f"row{'' if len(rows) == 1 else 's'} {shown}{more}"
