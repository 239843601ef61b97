"""The whole plan, and `[run]`: how the model is trained."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, StringConstraints, Tag

from raykit.ids import Name
from raykit.plan.deciding import BaseRun, Comparison, Diagnosis, Protocol, Value
from raykit.plan.tables import (
    Above0,
    AtLeast0,
    Budget,
    Claim,
    Data,
    DevelopmentMetric,
    Generate,
    Mode,
    Notify,
    Pool,
    Qc,
    Rate,
    Search,
    Selection,
    Splits,
    Table,
    Text,
    check_selection,
    refuse,
    selection_of,
)
from raykit.records import Count, Exactness, Positive

ModuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", max_length=400)]
Category = Literal["causal-comparison", "model-selection", "production-improvement", "final-audit"]
Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """End after `patience` evaluations in a row that are not better by more than `min_delta`."""

    mode: Mode
    metric: str
    patience: int
    min_delta: float


# --- [run] --------------------------------------------------------------------------------------------------


class StopRule(Table):
    """Early stopping on the development split."""

    metric: DevelopmentMetric = Field(description='"development.<metric>"')
    patience: Positive = Field(description="how many evaluations in a row may be no better, at least 1")
    min_delta: AtLeast0 = Field(description="how much better counts, in the metric's units, at least 0")
    mode: Mode | None = Field(
        None, description="min | max; taken from run.select where it reads the same metric"
    )


def _stop_kind(value: object) -> str:
    return "<never>" if isinstance(value, str) else "<rule>"


Stop = Annotated[
    Annotated[Literal["never"], Tag("<never>")] | Annotated[StopRule, Tag("<rule>")],
    Discriminator(_stop_kind),
]


def _smooth(text: str) -> str:
    kind, _, factor = text.partition(" ")
    if kind != "ema" or not re.fullmatch(r"0?\.[0-9]{1,6}", factor) or float(factor) == 0:
        refuse("is not a smoothing rule", '"ema 0.98": an exponential mean with a factor between 0 and 1')
    return text


class Curves(Table):
    """When curves are drawn during the run, and how their trend is smoothed. Neither has a default."""

    every: Positive = Field(description="the updates between two drawings, at least 1")
    smooth: Annotated[str, AfterValidator(_smooth)] = Field(description='the trend, such as "ema 0.98"')


class Dtypes(Table):
    """Three separate precisions: stored parameters, optimizer state, and arithmetic."""

    params: Precision = Field("float32", description="float32 | bfloat16 | float16")
    optimizer: Precision = Field("float32", description="float32 | bfloat16 | float16")
    autocast: Precision | Literal["none"] = Field("none", description="none | float32 | bfloat16 | float16")


class KeepCheckpoints(Table):
    """What retention leaves, beside everything that something depends on."""

    last: Positive = Field(description="the newest that verify, at least 1")
    every: Positive | None = Field(None, description="also each one at a multiple of so many updates")


class Run(Table):
    """How the model is trained. What costs money or changes the result has no default."""

    updates: Positive = Field(description="optimizer updates of the whole run, at least 1")
    batch: Positive = Field(description="examples per update over all workers, at least 1")
    seed: Count = Field(description="the seed of everything random, at least 0")
    params: Mapping[str, Any] = Field(default_factory=dict, description="a table for the recipe's Params")
    checkpoint_every: Positive = Field(description="the updates between two checkpoints, at least 1")
    evaluate_every: Positive = Field(
        default_factory=lambda earlier: earlier["checkpoint_every"],
        description="the updates between two evaluations, at least 1",
    )
    select: Annotated[str, AfterValidator(check_selection)] | None = Field(
        None,
        description='which checkpoint is taken: "min development.<metric>" or "max development.<metric>"',
    )
    stop: Stop | None = Field(
        None, description='"never", or { metric = "development.<metric>", patience = 4, min_delta = 0.001 }'
    )
    curves: Curves = Field(description='when curves are drawn: { every = 100, smooth = "ema 0.98" }')
    workers: Positive = Field(1, description="data-parallel ranks, at least 1")
    accumulate: Positive = Field(1, description="micro-batches per update and rank, at least 1")
    shard: Literal["ddp", "fsdp2"] = Field("ddp", description="ddp | fsdp2")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto | cpu | cuda")
    loader_workers: Count = Field(0, description="processes that read data for one rank, at least 0")
    threads: Positive = Field(1, description="threads for arithmetic in one rank, at least 1")
    clip: Above0 | None = Field(None, description="the greatest gradient norm, above 0")
    dtype: Dtypes = Field(default_factory=Dtypes, description="a table of params, optimizer and autocast")
    deterministic: bool = Field(True, description="true | false: only kernels that repeat bit for bit")
    evaluating: tuple[ModuleName, ...] | None = Field(
        None, description="modules of the model that stay in evaluation mode while it trains, by name"
    )
    resume: Literal["exact", "state-exact", "order-exact"] = Field(
        "exact", description="the least a resume may be: exact | state-exact | order-exact"
    )
    replay: Literal["end", "never"] = Field(
        "never",
        description="end | never: train a part again in another process, at the end, where an early one costs too much",
    )
    replay_share: Rate = Field(
        0.01, description="the share of the run that an early replay may cost, 0 (none) to 1"
    )
    on_inexact: Literal["pause", "continue"] = Field(
        "pause", description="pause | continue: when the run turns out to be less exact than it was to be"
    )
    harmless: tuple[Text, ...] = Field(
        (), description='state outside of checkpoints that does not matter: ["recipe.calls"]'
    )
    attempts: Positive = Field(3, description="how often the run may start, at least 1")
    flush_s: Above0 = Field(5.0, description="seconds after which history is durable at the latest, above 0")
    hold_s: Above0 = Field(
        300.0,
        description="seconds to hold, in memory, while the store or the budget does not answer, above 0",
    )
    keep_checkpoints: KeepCheckpoints | None = Field(None, description="{ last = 3, every = 2000 }")
    loss_window_min: Above0 | None = Field(None, description="minutes of work that a crash may cost at most")
    wall_h: Above0 | None = Field(None, description="productive hours over all attempts together")

    @property
    def selection(self) -> Selection | None:
        """Which checkpoint is taken; None only in the trials of a search."""
        return None if self.select is None else selection_of(self.select)

    @property
    def stopping(self) -> Stopping | None:
        """The early stopping rule with its direction; None if the run never stops early."""
        if not isinstance(self.stop, StopRule):
            return None
        metric = self.stop.metric.partition(".")[2]
        chosen = self.selection
        mode = self.stop.mode or (chosen.mode if chosen is not None and chosen.metric == metric else None)
        if mode is None:
            return None
        return Stopping(mode=mode, metric=metric, patience=self.stop.patience, min_delta=self.stop.min_delta)

    @property
    def micro_batch(self) -> int:
        """Examples in one forward and backward of one rank."""
        return self.batch // (self.workers * self.accumulate)

    @property
    def needed(self) -> Exactness:
        """The least exactness class that a resume may have."""
        return self.resume


# --- the plan -----------------------------------------------------------------------------------------------

RecipeSpec = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$", max_length=200
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a team always says the same way, in one file beside its plans."""

    name: str
    """As the plan names it."""
    data: bytes
    sha256: str
    tables: tuple[str, ...]
    """The tables that take something from it, such as `claim` and `pools.train`."""


class Plan(Table):
    """One plan: a decision, and what it takes to make it."""

    schema_: Annotated[int, Field(ge=1, le=1)] = Field(alias="schema", description="1")
    name: Name = Field(
        description="lower-case letters, digits, '.', '_', '-', first a letter or digit, at most 128"
    )
    recipe: RecipeSpec = Field(description='"module:Class", the module beside the plan')
    decision: Text = Field(description="what will be chosen with the result")
    category: Category = Field(
        description="causal-comparison | model-selection | production-improvement | final-audit"
    )
    if_no: Text | None = Field(None, description="what is done if the answer is no")
    research: bool = Field(
        False, description="true | false: the controls of a clean-room experiment are wanted, and paid for"
    )
    tags: tuple[Name, ...] = Field((), description="safe names")
    claim: Claim = Field(
        description="a table: unit, target, population, metric, worthwhile, success, compare"
    )
    base: BaseRun | None = Field(None, description="a table: candidate, start, keep")
    value: Value | None = Field(None, description="a table: remains, changes, matters, justifies, first")
    protocol: Protocol | None = Field(None, description="a table: updates, batch, params, train")
    diagnosis: Diagnosis | None = Field(None, description="a table: hypotheses, tests")
    comparison: Comparison | None = Field(None, description="a table: arms, varies, inputs, detectable")
    splits: Splits | None = Field(None, description="a table: group, and the share of each role")
    data: Data | None = Field(None, description="a table: the source of each role")
    search: Search | None = Field(None, description="a table: hypothesis, sampler, trials, metric, space")
    run: Run = Field(description="a table: updates, batch, seed, checkpoint_every, select, stop, curves")
    qc: Qc | None = Field(None, description="a table: owner, every, roster, fail, on_failure")
    generate: Mapping[Name, Generate] = Field(default_factory=dict, description="one table for each set")
    pools: Mapping[Literal["train", "qc", "generate", "search"], Pool] = Field(
        default_factory=dict, description="tables for train, qc, generate, search"
    )
    budget: Budget | None = Field(None, description="a table: ceiling_usd, confirm")
    notify: Notify | None = Field(None, description="a table: on, to_file")

    _sha256: str = PrivateAttr(default="")
    _shared: Shared | None = PrivateAttr(default=None)

    @property
    def sha256(self) -> str:
        """The digest of the file that the plan was read from."""
        return self._sha256

    @property
    def shared(self) -> Shared | None:
        """The shared file that some of its tables are `from`; None if it has none."""
        return self._shared
