"""The tables of a plan, but for `[run]` and those of `deciding`. What would pass is the description of each key.

Every table is frozen and strict, and refuses keys that it does not know. Rules that look at more than one key
are in `raykit.plan.rules`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
)
from pydantic_core import PydanticCustomError

from raykit.ids import Name, canonical
from raykit.records import Count, Positive

Role = Literal["train", "development", "calibration", "report_only", "benchmark", "sealed"]
Mode = Literal["min", "max"]

NOT_A_ROLE = (
    'not a role here: elsewhere "validation" both selects and reports, and those must be two sets',
    "development = ... (selects)   or   report_only = ... (never selects)",
)


def refuse(problem: str, rule: str | None = None, remedy: str | None = None) -> NoReturn:
    """Turn a broken rule into a pydantic error that carries its whole text."""
    raise PydanticCustomError("rule", "{problem}", {"problem": problem, "rule": rule, "remedy": remedy})


class Table(BaseModel):
    """One table of a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """The table as JSON values under the names that the file uses; keys without a value are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _printable(text: str) -> str:
    if not text.replace("\n", " ").isprintable():
        refuse("holds control characters", "text that can be shown as it is")
    return text


Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000), AfterValidator(_printable)
]
Above0 = Annotated[float, Field(gt=0)]
AtLeast0 = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(ge=0, le=1)]
Percentile = Annotated[float, Field(ge=0, le=100)]


# --- what a metric is read from -----------------------------------------------------------------------------

Metric = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.:/-]{0,127}$")]
METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which checkpoint of a run is taken: the one with the least or the greatest `metric` on development."""

    mode: Mode
    metric: str


def _metric_of(reference: str, rule: str) -> str:
    """The metric of `development.<metric>`; every other split is refused, because it may not decide."""
    role, dot, metric = reference.partition(".")
    if role == "validation":
        refuse(f"reads validation: {NOT_A_ROLE[0]}", rule, NOT_A_ROLE[1])
    if role in {"report_only", "benchmark", "sealed", "train", "calibration"}:
        refuse(
            f"reads the {role} split, which may not decide this", "only the development split selects", rule
        )
    if not dot or role != "development" or not METRIC.fullmatch(metric):
        refuse("is not a metric of a split", rule)
    return metric


def check_selection(text: str) -> str:
    """Check `min development.<metric>`, and keep it as it is."""
    selection_of(text)
    return text


def selection_of(text: str) -> Selection:
    """Read `min development.<metric>`."""
    rule = '"min development.<metric>" or "max development.<metric>"'
    mode, _, reference = text.partition(" ")
    for known in get_args(Mode):
        if mode == known:
            return Selection(mode=known, metric=_metric_of(reference, rule))
    refuse("says neither min nor max", rule)


def _development_metric(text: str) -> str:
    _metric_of(text, '"development.<metric>"')
    return text


DevelopmentMetric = Annotated[str, AfterValidator(_development_metric)]


# --- [claim] ------------------------------------------------------------------------------------------------


Label = Literal["none", "recorded", "true"]


class Claim(Table):
    """What the run is meant to show."""

    unit: Text = Field(description="what one prediction is about, such as one image")
    inputs: Text | None = Field(
        None, description="what is known when it predicts; the unit itself if not said"
    )
    target: Text = Field(description="what the target means, and whether a label is predicted")
    label: Label | None = Field(
        None,
        description="none | recorded | true: no label is predicted, one that a workflow recorded, or the right "
        "decision in the world",
    )
    label_quality: Text | None = Field(
        None, description="how good the labels are known to be, and how that is known"
    )
    population: Text = Field(description="what the result is meant to hold for")
    metric: Text = Field(description="the one task metric, by its name")
    worthwhile: Above0 = Field(description="the smallest change in the metric that would change what you do")
    success: Text = Field(description="the result that counts as success, in the metric's units")
    compare: tuple[Text, ...] = Field(description="what it is compared with, at least one", min_length=1)
    report_only: Literal["supports"] | None = Field(
        None, description="supports: a report-only metric may support a recommendation; it never approves"
    )


# --- [splits], [data] ---------------------------------------------------------------------------------------


class Splits(Table):
    """Roles as shares of the recipe's own data. A role is one set with one authority."""

    group: Text = Field(description='what stays together: "content", or a column of the data')
    train: Share = Field(description="the share that trains, between 0 and 1")
    development: Share | None = Field(None, description="the share that selects")
    calibration: Share | None = Field(None, description="the share that calibrates")
    report_only: Share | None = Field(None, description="the share that reports and never selects")
    benchmark: Share | None = Field(None, description="the share that compares with others' work")
    sealed: Share | None = Field(None, description="the share that opens once")
    why: Text | None = Field(
        None, description="why groups of the data, or equal contents, may lie in more than one split"
    )

    def shares(self) -> dict[str, float]:
        """The share of each role that the plan has."""
        return {role: share for role, share in self.plain().items() if role not in ("group", "why")}


def _one_or_more(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Sources = Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(_one_or_more)]


class Data(Table):
    """Roles as sources: one set, or a list of sets, each."""

    train: Sources = Field(description="the source or sources that train")
    mix: Mapping[str, Share] | None = Field(
        None, description="the share of each training source, summing to 1"
    )
    group: Text | None = Field(None, description="the column that says what stays together")
    development: Sources | None = Field(None, description="the source that selects")
    calibration: Sources | None = Field(None, description="the source that calibrates")
    report_only: Sources | None = Field(None, description="the source that reports and never selects")
    benchmark: Sources | None = Field(None, description="the source that compares with others' work")
    sealed: Sources | None = Field(None, description="the source that opens once")

    def sources(self) -> dict[str, tuple[str, ...]]:
        """The sources of each role that the plan has."""
        roles = ("train", "development", "calibration", "report_only", "benchmark", "sealed")
        return {role: getattr(self, role) for role in roles if getattr(self, role) is not None}


# --- [qc], [generate] ---------------------------------------------------------------------------------------


def _units_kind(value: object) -> str:
    return "<each>" if isinstance(value, Mapping) else "<all>"


Units = Annotated[
    Annotated[Positive, Tag("<all>")]
    | Annotated[Annotated[Mapping[Text, Positive], Field(min_length=1)], Tag("<each>")],
    Discriminator(_units_kind),
]


class Roster(Table):
    """The fixed examples that every checkpoint is scored on."""

    stratum: Text = Field(description="the column whose values are kept apart")
    units: Units = Field(
        description='examples of each stratum, at least 1; or a table of them: { "0" = 20, "1" = 40 }'
    )
    from_: Role = Field("development", alias="from", description="the split that the examples come from")


Span = tuple[float, float]


class FieldBounds(Table):
    """How one field is summarized, and when it counts as collapsed. None of it has a default."""

    space: Literal["linear", "log"] = Field(description="linear | log")
    low: Percentile = Field(description="the low percentile, 0 to 100")
    high: Percentile = Field(description="the high percentile, 0 to 100, above the low one")
    collapse: Annotated[float, Field(gt=0, le=1)] = Field(
        description="the share of the reference spread below which it has collapsed, above 0, at most 1"
    )
    bounds: Span | None = Field(None, description="[low, high]: the ends of its range")
    occupancy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="the greatest share of values at one end of the range, above 0, at most 1"
    )
    used: Above0 | None = Field(
        None, description="the least rise of the ratio when the field is permuted over units, above 0"
    )


Threshold = Annotated[
    str,
    StringConstraints(
        pattern=r"^(>|>=|<|<=) ?(base ?[+-] ?)?-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$", max_length=60
    ),
]


class Qc(Table):
    """What is checked on every checkpoint, and what a failure does."""

    owner: Text = Field(description="the person who answers for it")
    every: Positive = Field(description="the updates between two checks, a multiple of run.checkpoint_every")
    roster: Roster = Field(description='{ stratum = "label", units = 20 }')
    metrics: tuple[Text, ...] = Field((), description="the metrics, by name")
    fail: Mapping[str, Threshold] = Field(
        description='what fails a checkpoint: { ratio = "> 0.35" }', min_length=1
    )
    fields: Mapping[str, FieldBounds] = Field(
        default_factory=dict, description="bounds per field of the recipe"
    )
    on_failure: Literal["continue", "pause", "stop"] = Field(description="continue | pause | stop")
    drain_s: Above0 | None = Field(None, description="seconds to wait for open checks at the end of the run")
    deadline_s: Above0 | None = Field(
        None, description="seconds that one check may take; worked out from the first one if not said"
    )
    tries: Annotated[int, Field(ge=1, le=10)] = Field(
        3, description="how often a check that does not come to an end is tried, 1 to 10"
    )
    memory_gb: Above0 | None = Field(
        None, description="gigabytes that one worker may hold; worked out from the machine if not said"
    )
    shares: Text | None = Field(
        None, description="why checks may use the accelerators that training holds; without it they never do"
    )


class Generate(Table):
    """One synthetic set."""

    teacher: Text = Field("selected", description='"selected", or a registered candidate')
    inputs: Text | None = Field(
        None, description="a Parquet, JSON Lines or CSV file of inputs, each with an id"
    )
    types: (
        Annotated[Mapping[str, Literal["text", "int64", "float64", "bool"]], Field(min_length=1)] | None
    ) = Field(
        None,
        description='the types of columns of inputs: { length = "int64" }; text | int64 | float64 | bool',
    )
    rows: Positive | None = Field(None, description="rows to produce, at least 1")
    samples: Positive = Field(1, description="rows per input, at least 1")
    unit_rows: Positive = Field(description="rows of one unit of work, at least 1")
    batch_rows: Positive | None = Field(
        None, description="rows that the recipe is asked for at once; those of a unit if not said"
    )
    seed: Count = Field(0, description="at least 0: another seed is another set")
    decode: Mapping[str, Any] = Field(default_factory=dict, description="a table for the recipe's generate")
    options: Mapping[Name, Mapping[str, Any]] = Field(
        default_factory=dict,
        description="other tables like decode, measured beside it before anything is made",
    )
    quality: Annotated[str, AfterValidator(check_selection)] | None = Field(
        None,
        description='"min development.<metric>" or "max development.<metric>" of the recipe\'s quality(): what the '
        "options are compared on",
    )
    why: Text | None = Field(
        None, description="why decode is taken although an option is no worse and costs less"
    )
    bounds: Mapping[str, Rate] = Field(
        description="the greatest share of each kind of bad row, 0 to 1", min_length=1
    )
    exact: bool = Field(True, description="false where two attempts at a unit may differ in their bits")
    canary_units: Positive = Field(2, description="units that are made and judged first, at least 1")
    input_mb: Above0 = Field(
        16.0, description="megabytes that one input may have; a larger one is a failed row"
    )
    wall_h: Above0 | None = Field(None, description="hours")
    deadline_s: Above0 | None = Field(
        None, description="seconds that one unit may take; worked out from the canary if not said"
    )
    tries: Positive = Field(3, description="attempts at one unit before it is parked, at least 1")
    memory_gb: Above0 | None = Field(
        None, description="gigabytes that one worker may hold; worked out from the machine if not said"
    )


# --- [pools], [budget], [notify] ----------------------------------------------------------------------------


class Price(Table):
    """What an accelerator-hour costs, and who says so."""

    rate: AtLeast0 = Field(description="US dollars for one accelerator and hour")
    source: Text = Field(description="where the rate is from, with its date")
    billed: Literal["node", "resource"] = Field(description="node | resource: what stops costing on release")


class Pool(Table):
    """The machines for one kind of work."""

    nodes: Mapping[str, Text] = Field(default_factory=dict, description="labels that a node must have")
    gpus: Count = Field(description="accelerators, at least 0; 0 on a machine where each rank counts as one")
    usd_per_hour: Price | None = Field(
        None, description='{ rate = 2.99, source = "invoice 2026-10", billed = "node" }'
    )
    release: Text | None = Field(None, description="the command that gives the machines back")


class Budget(Table):
    """What the plan may cost, and what of it stays reserved."""

    account: Name | None = Field(None, description="the account that pays")
    ceiling_usd: Above0 | None = Field(None, description="US dollars that the plan stays below")
    accelerator_hours: Above0 | None = Field(
        None, description="accelerator-hours that are granted, instead of dollars: usable to the last one"
    )
    margin: Annotated[float, Field(ge=1)] = Field(
        1.0, description="how far a rate may rise, as a factor, at least 1"
    )
    confirm: Literal["one-run"] = Field(
        description='"one-run": one run at the target protocol stays reserved'
    )
    scratch_usd: AtLeast0 | None = Field(
        None, description="US dollars for debugging; its results are never cited"
    )
    fixed_usd: Mapping[Name, AtLeast0] = Field(default_factory=dict, description="US dollars by purpose")

    @property
    def ceiling(self) -> float:
        """The ceiling, in whichever unit the plan has."""
        return self.ceiling_usd or self.accelerator_hours or 0.0


class Notify(Table):
    """Who is told, by way of a file: addresses never lie in a plan."""

    on: tuple[Literal["approval-needed", "paused", "overdue", "qc-failed", "stalled", "finished"], ...] = (
        Field(description="approval-needed, paused, overdue, qc-failed, stalled, finished", min_length=1)
    )
    to_file: Text = Field(description="the path of the file that holds the addresses")


# --- [search] -----------------------------------------------------------------------------------------------


class Sampler(Table):
    name: Literal["optuna.tpe", "random", "grid"] = Field(description="optuna.tpe | random | grid")
    seed: Count = Field(description="the sampler's own seed, at least 0")


class Repeats(Table):
    top: Positive = Field(description="how many of the best are repeated, at least 1")
    seeds: tuple[Count, ...] = Field(description="the seeds of the repeats, at least one", min_length=1)


class Scheduler(Table):
    name: Literal["asha", "median"] = Field(description="asha | median")
    grace_updates: Positive = Field(description="updates before a trial may be stopped, at least 1")
    reduction: Annotated[int, Field(ge=2)] | None = Field(
        None, description="of asha: one in so many goes on, at least 2"
    )
    least: Positive | None = Field(
        None,
        description="of median: the trials that there must be before one is held against their median; 3 if not said",
    )


class Range(Table):
    """The values of one searched parameter, in exactly one form."""

    uniform: Span | None = Field(None, description="[low, high]")
    loguniform: Span | None = Field(None, description="[low, high], both above 0")
    integer: tuple[int, int] | None = Field(None, description="[low, high]")
    choice: tuple[Any, ...] | None = Field(None, description="a list of values", min_length=1)

    @property
    def size(self) -> int | None:
        """How many values it has; None of a continuous one."""
        if self.integer is not None:
            return self.integer[1] - self.integer[0] + 1
        return None if self.choice is None else len(self.choice)

    def value(self, index: int) -> Any:
        """A value by its number, from 0, of one that has a size."""
        if self.integer is not None:
            return self.integer[0] + index
        assert self.choice is not None
        return self.choice[index]

    def values(self) -> Iterator[Any]:
        """Every value of one that has a size."""
        return (self.value(index) for index in range(self.size or 0))

    def index(self, value: object) -> int | None:
        """Where a value stands in a choice; None if it is none of them."""
        same = [n for n, known in enumerate(self.choice or ()) if as_value(known) == as_value(value)]
        return same[0] if same else None

    def holds(self, value: object) -> bool:
        """Whether a value is one of these."""
        if self.choice is not None:
            return self.index(value) is not None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.integer is not None:
            return isinstance(value, int) and self.integer[0] <= value <= self.integer[1]
        low, high = self.uniform or self.loguniform or (math.inf, -math.inf)
        return low <= value <= high

    def cast(self, value: Any) -> Any:
        """A value that it holds, as it would be drawn: a float of a continuous one, the very value of a choice."""
        if (index := self.index(value)) is not None:
            return self.value(index)
        return value if self.integer is not None else float(value)


def as_value(value: object) -> bytes:
    """What tells two values of a parameter apart: 1 and 1.0 are one value, 1 and true are two."""
    if isinstance(value, float) and value.is_integer():
        return canonical(int(value))
    return canonical(value)


class Search(Table):
    """A bounded search: its table of trials is fixed before the first one runs."""

    hypothesis: Text = Field(description="what the search believes")
    predicts: Text = Field(description="what would be seen if it is true, and if it is false")
    sampler: Sampler = Field(description='{ name = "optuna.tpe", seed = 7 }')
    trials: Positive = Field(description="the number of trials, at least 2")
    repeats: Repeats | None = Field(None, description="{ top = 2, seeds = [2, 3] }")
    concurrent: Positive = Field(description="trials at once, at least 1")
    scheduler: Scheduler | None = Field(
        None, description='{ name = "asha", grace_updates = 400, reduction = 3 }'
    )
    metric: DevelopmentMetric = Field(description='"development.<metric>"')
    mode: Mode = Field(description="min | max")
    first: tuple[Mapping[str, Any], ...] = Field(
        (), description="settings that run first, such as the incumbent's: [{ lr = 6e-5, warmup = 200 }]"
    )
    transfer: Text | None = Field(None, description="what carries the result over to the target size")
    space: Mapping[str, Range] = Field(description="the searched parameters, at least one", min_length=1)

    @property
    def rows(self) -> int:
        """The rows of its table: every trial, and every repeat of the best."""
        return self.trials + (0 if self.repeats is None else self.repeats.top * len(self.repeats.seeds))

    @property
    def waves(self) -> int:
        """How often the pool is filled with rows, one wave after the other."""
        return -(-self.rows // self.concurrent)
