"""A search as people look at it: its table, how far each row is, who is waited for, the pick and what it is worth.

Nothing is read here: `raykit.read.search` fills these in.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from raykit.errors import InvalidInput
from raykit.pauses import InForce, way_on
from raykit.read.money import Money
from raykit.read.searchtable import arrow_of
from raykit.read.view import Health
from raykit.records import BY_BUDGET, Cancelled, End, Excluded, Picked, Place, SearchRegistration, Unit

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ENDS: tuple[End, ...] = get_args(End)

Live = Literal["running", "stopping", "stopped"]
"""Of a row that was begun and has no end: its trial trains, is asked to stop at its next update, or is not at work."""

RowStatus = Literal["waiting"] | Live | End

SearchHealth = Literal[Health, "needs you"]

SearchState = Literal[
    "registered", "running", "pausing", "paused", "stopped", "out of budget", "complete", "cancelled"
]
"""`stopped`: rows are open, and nobody is at them. `out of budget`: every row has ended, some because of money."""

AT_WORK: frozenset[RowStatus] = frozenset({"running", "stopping"})

UNBEGUN: frozenset[RowStatus] = frozenset({"refused-by-budget", "never-started"})
"""Ends of rows that were never begun."""

MOST_NAMED = 12
"""So many rows are named in a sentence."""

MONEY_CAUSES = frozenset({"ceiling", "replan"})
"""Causes of a pause that only money ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """One row of the table at one moment."""

    row: int
    run: str
    """Its run: `trial-007`."""
    kind: Literal["trial", "repeat"]
    seed: int
    params: Mapping[str, Any] | None
    """None until they are drawn."""
    rank: int | None = None
    """Of a repeat: which of the best it repeats."""
    repeats: int | None = None
    """Of a repeat: the trial that it repeats, once that is known."""
    status: RowStatus
    update: int = 0
    """The last update that is durable."""
    value: float | None = None
    """The metric: of a row at work, as it was last reported."""
    at: int | None = None
    """The update that the value is from."""
    cost: int = 0
    """Micro-units, of all attempts; of one that goes on, its worst case."""
    accelerator_ms: int = 0
    """How long accelerators were held for it, times how many."""
    held_ms: int = 0
    """How long its attempts held what they run on: what lies between two of them is nobody's."""
    attempts: int = 0
    begun_at: float | None = None
    ended_at: float | None = None
    heard_at: float | None = None
    """Of a row at work: when something was last written of it."""
    checkpoint: str | None = None
    """The checkpoint that its value is from, by the digest of its manifest."""
    detail: str | None = None
    health: SearchHealth = "ok"
    """Of a row that was begun and has no end: what its rows of history say."""

    @property
    def ended(self) -> bool:
        return self.status in ENDS

    @property
    def counts(self) -> bool:
        """Whether its value may be picked."""
        return self.status == "completed" and self.value is not None

    @property
    def took_s(self) -> float | None:
        """How long its attempts took together; None where there was none."""
        return self.held_ms / 1000 if self.attempts else None

    def plain(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {
            "row": self.row,
            "run": self.run,
            "kind": self.kind,
            "rank": self.rank,
            "repeats": self.repeats,
            "seed": self.seed,
            "params": None if self.params is None else dict(self.params),
            "status": self.status,
            "update": self.update,
            "value": self.value,
            "at": self.at,
            "cost": self.cost,
            "accelerator_ms": self.accelerator_ms,
            "held_ms": self.held_ms,
            "attempts": self.attempts,
            "begun_at": self.begun_at,
            "ended_at": self.ended_at,
            "heard_at": self.heard_at,
            "checkpoint": self.checkpoint,
            "health": self.health,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The pick held against the incumbent: only observed, and never more than that."""

    incumbent: int
    """The row of the setting that is used today: the first that the plan names."""
    incumbent_value: float | None
    """Over its seeds: the mean. None if it has none."""
    incumbent_seeds: int
    gain: float | None
    """By how much the pick is better, in the metric; below 0 if it is worse."""
    worthwhile: float | None
    """The smallest difference that would change what is done, in the same metric."""
    noise: float | None
    """The largest spread over seeds of one setting: what a difference has to be above. None if nothing was repeated."""
    repeated: int
    """How many settings were run with more than one seed."""
    same: bool
    """The incumbent itself was picked."""

    @property
    def inside_noise(self) -> bool | None:
        """Whether the difference is no larger than that between seeds of one setting; None if there is none, or nobody
        knows."""
        if self.same or self.gain is None or self.noise is None:
            return None
        return abs(self.gain) <= self.noise

    @property
    def worth_it(self) -> bool:
        """It is better by what matters, and by more than seeds differ."""
        return (
            self.gain is not None
            and self.worthwhile is not None
            and self.gain >= self.worthwhile
            and self.inside_noise is False
        )

    @property
    def words(self) -> str:
        """What the difference comes to, in one sentence."""
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.same:
            yield f"the incumbent, row {self.incumbent}, is the best that was observed"
            return
        if self.gain is None or self.incumbent_value is None:
            yield f"the incumbent, row {self.incumbent}, has no value: nothing says that the pick is better"
            return
        way = "better" if self.gain > 0 else "worse"
        seeds = "one seed" if self.incumbent_seeds == 1 else f"{self.incumbent_seeds} seeds"
        held = f"row {self.incumbent}: {self.incumbent_value:.4g}, {seeds}"
        yield f"{abs(self.gain):.4g} {way} than the incumbent ({held})" if self.gain else f"as good as {held}"
        if self.noise is None:
            yield "how far seeds alone differ is not known: nothing was repeated"
        elif self.inside_noise:
            yield f"INSIDE THE NOISE: seeds of one setting differ by up to {self.noise:.4g}"
        else:
            yield f"seeds of one setting differ by up to {self.noise:.4g}"
        if self.worthwhile is None:
            yield "the plan says of no difference in this metric that it matters"
        elif self.gain >= self.worthwhile:
            yield f"worthwhile from {self.worthwhile:g}"
        else:
            yield f"less than what is worthwhile, {self.worthwhile:g}"

    def plain(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "incumbent": self.incumbent,
            "incumbent_value": self.incumbent_value,
            "incumbent_seeds": self.incumbent_seeds,
            "gain": self.gain,
            "worthwhile": self.worthwhile,
            "noise": self.noise,
            "repeated_settings": self.repeated,
            "inside_noise": self.inside_noise,
            "worth_it": self.worth_it,
            "same": self.same,
            "words": self.words,
        }


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
        order: tuple[SearchHealth, ...] = ("corrupt", "nonfinite", "collapsed", "silent")
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
                return f"stopped: {len(self.rows) - self.done:,} rows are open, and nobody is at them"
            case "out of budget":
                return f"out of budget: {self.shortfall}" if self.shortfall else "out of budget"
            case "cancelled" if self.cancelled is not None:
                return f"cancelled by {self.cancelled.person}: {self.cancelled.reason}"
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
    def commands(self) -> tuple[str, ...]:
        """What goes on with it, one command after the other; none where nothing has to be done."""
        name = self.experiment
        replan = f"raykit budget replan {name} --reason ... --by NAME"
        match self.state:
            case "registered" | "stopped":
                return (f"raykit resume {name}",)
            case "out of budget":
                return (replan, f"raykit resume {name} --by NAME")
            case "complete" if self.pick_due is not None:
                return (self.pick_due.command,)
            case "paused" if self.pause is not None:
                pays = (replan,) if self.pause.pause.cause in MONEY_CAUSES else ()
                wide = not self.pause.pause.scope.startswith("experiment:")
                return (*pays, way_on(self.pause), *([f"raykit resume {name}"] if wide else []))
            case _:
                return ()

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


def verdict_of(
    rows: Sequence[RowRead],
    picked: Picked | None,
    *,
    mode: Literal["min", "max"],
    incumbent: int | None,
    worthwhile: float | None,
) -> Verdict | None:
    """The pick held against the setting that is used today; None without a pick or such a setting."""
    if picked is None or incumbent is None:
        return None
    seeds = _by_setting(rows)
    known = seeds.get(incumbent, ())
    value = statistics.mean(known) if known else None
    gain = None
    if value is not None:
        gain = value - picked.value if mode == "min" else picked.value - value
    repeated = [values for values in seeds.values() if len(values) > 1]
    return Verdict(
        incumbent=incumbent,
        incumbent_value=value,
        incumbent_seeds=len(known),
        gain=gain,
        worthwhile=worthwhile,
        noise=max((max(values) - min(values) for values in repeated), default=None),
        repeated=len(repeated),
        same=picked.row == incumbent,
    )


def _by_setting(rows: Sequence[RowRead]) -> dict[int, tuple[float, ...]]:
    """By trial: the values of all completed rows that have its setting."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.counts and row.value is not None:
            found.setdefault(row.repeats or row.row, []).append(row.value)
    return {trial: tuple(values) for trial, values in found.items()}


def short_of_money(rows: Sequence[RowRead]) -> str | None:
    """Which rows a budget has ended, in words; None if it has ended none."""
    parts = [
        f"{many:,} {end}" for end in ENDS if end in BY_BUDGET and (many := sum(r.status == end for r in rows))
    ]
    return ", ".join(parts) or None
