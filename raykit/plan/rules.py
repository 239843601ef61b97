"""Rules that look at more than one key of a plan. Each runs once the tables that it reads are valid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from raykit.plan.deciding import OTHERWISE, TRAINS_FROM, BaseRun, Comparison, Diagnosis, Protocol, Value
from raykit.plan.finding import Finding, Loc
from raykit.plan.model import Run, StopRule
from raykit.plan.searching import broken_search
from raykit.plan.tables import (
    Budget,
    Claim,
    Data,
    FieldBounds,
    Generate,
    Notify,
    Pool,
    Qc,
    Search,
    Splits,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Valid:
    """The tables of a plan that are valid by themselves, and the names of all that are there."""

    present: frozenset[str]
    claim: Claim | None = None
    base: BaseRun | None = None
    value: Value | None = None
    protocol: Protocol | None = None
    diagnosis: Diagnosis | None = None
    comparison: Comparison | None = None
    splits: Splits | None = None
    data: Data | None = None
    search: Search | None = None
    run: Run | None = None
    qc: Qc | None = None
    generate: Mapping[str, Generate] = field(default_factory=dict)
    pools: Mapping[str, Pool] = field(default_factory=dict)
    budget: Budget | None = None
    notify: Notify | None = None

    def roles(self) -> frozenset[str] | None:
        """Every role that has rows; None if that cannot be known."""
        if (self.splits is None and "splits" in self.present) or (
            self.data is None and "data" in self.present
        ):
            return None
        shares = self.splits.shares() if self.splits else {}
        sources = self.data.sources() if self.data else {}
        return frozenset(shares) | frozenset(sources)


def broken(valid: Valid) -> Iterator[Finding]:
    """Every rule across keys that the plan breaks."""
    yield from _roles(valid)
    if valid.base:
        yield from _base(valid.base)
    if valid.diagnosis:
        yield from _diagnosis(valid.diagnosis)
    if valid.comparison:
        yield from _comparison(valid, valid.comparison)
    if valid.splits:
        yield from _splits(valid.splits)
    if valid.data:
        yield from _data(valid.data)
    if valid.run:
        yield from _run(valid.run)
        yield from _decides(valid, valid.run)
    if valid.qc:
        yield from _qc(valid, valid.qc)
    for name, target in valid.generate.items():
        yield from _generate(("generate", name), target)
    if valid.search:
        yield from broken_search(valid.search, valid.run, valid.pools, valid.budget)
    yield from _money(valid)
    if valid.notify and "://" in valid.notify.to_file:
        yield Finding(("notify", "to_file"), "is an address", "the path of a file that holds the addresses")


def _roles(valid: Valid) -> Iterator[Finding]:
    if not valid.present & {"splits", "data"}:
        yield Finding(("splits",), "missing", "a table: group, and the share of each role, train first")
    if valid.splits and valid.data:
        for role in sorted(valid.splits.shares().keys() & valid.data.sources().keys()):
            yield Finding(("data", role), "is there twice", f"one of splits.{role} and data.{role}")


def _base(base: BaseRun) -> Iterator[Finding]:
    if base.start in TRAINS_FROM and "weights" not in base.keep:
        yield Finding(
            ("base", "keep"),
            f"carries no weights over, and base.start is {base.start}",
            'keep = ["weights"], or ["weights", "optimizer"]',
        )
    if base.start == "fresh" and base.keep:
        yield Finding(("base", "keep"), "carries something over into a fresh start", "leave base.keep out")


def _diagnosis(diagnosis: Diagnosis) -> Iterator[Finding]:
    known = diagnosis.hypotheses
    if OTHERWISE in known:
        yield Finding(
            ("diagnosis", "hypotheses", OTHERWISE), "cannot be the name of a hypothesis", "another name"
        )
    for name, test in diagnosis.tests.items():
        at = ("diagnosis", "tests", name)
        for key, given in (("predicts", test.predicts), ("next", test.next)):
            for other in sorted(given.keys() - known.keys() - {OTHERWISE}):
                rule = f"one of {', '.join(known)}, or {OTHERWISE}"
                yield Finding((*at, key, other), "is no hypothesis of this plan", rule)
        for hypothesis in known:
            if test.prediction(hypothesis) is None:
                rule = f"what would be observed if {hypothesis} is true, or {OTHERWISE}"
                yield Finding((*at, "predicts", hypothesis), "missing", rule)
            if test.branch(hypothesis) is None:
                rule = f"what is done after that observation, or {OTHERWISE}: a test without a branch decides nothing"
                yield Finding((*at, "next", hypothesis), "missing", rule)


def _comparison(valid: Valid, comparison: Comparison) -> Iterator[Finding]:
    roles = valid.roles()
    if roles and comparison.inputs not in roles:
        yield Finding(
            ("comparison", "inputs"), f"reads {comparison.inputs}, and there is no such split", "a role"
        )


def _splits(splits: Splits) -> Iterator[Finding]:
    total = math.fsum(splits.shares().values())
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        yield Finding(("splits",), f"the shares sum to {total:.12g}", "exactly 1")


def _data(data: Data) -> Iterator[Finding]:
    owner: dict[str, str] = {}
    for role, sources in data.sources().items():
        for source in sources:
            first = owner.setdefault(source, role)
            if first != role:
                yield Finding(
                    ("data", role), f"overlaps {first}: both read {source}", "each source in one role"
                )
            elif sources.count(source) > 1:
                yield Finding(("data", role), f"names {source} twice", "each source once")
                break
    if data.mix is None:
        return
    names = {source.rpartition("/")[2] for source in data.train}
    if set(data.mix) != names:
        yield Finding(("data", "mix"), "does not name exactly the training sources", ", ".join(sorted(names)))
    total = math.fsum(data.mix.values())
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        yield Finding(("data", "mix"), f"sums to {total:.12g}", "exactly 1")


def _run(run: Run) -> Iterator[Finding]:
    slices = run.workers * run.accumulate
    if run.batch % slices:
        yield Finding(
            ("run", "batch"),
            f"is {run.batch}, which {run.workers} workers x {run.accumulate} micro-batches cannot share",
            f"a multiple of {slices}",
        )
    if run.curves.every > run.updates:
        yield Finding(
            ("run", "curves", "every"),
            f"is {run.curves.every}, later than the run's last update",
            f"at most run.updates ({run.updates}): curves are drawn during the run, not only after it",
        )
    keep = run.keep_checkpoints
    if keep and keep.every and keep.every % run.checkpoint_every:
        yield Finding(
            ("run", "keep_checkpoints", "every"),
            f"is {keep.every}, where not every multiple has a checkpoint",
            f"a multiple of run.checkpoint_every ({run.checkpoint_every})",
        )
    if isinstance(run.stop, StopRule) and run.stopping is None:
        yield Finding(
            ("run", "stop", "mode"),
            "missing, and run.select reads another metric",
            "min | max",
        )


def _decides(valid: Valid, run: Run) -> Iterator[Finding]:
    """What decides is declared, and reads a split that is there."""
    if "search" not in valid.present:
        for key in ("select", "stop"):
            if getattr(run, key) is None:
                yield Finding(("run", key), "missing", Run.model_fields[key].description)
    roles = valid.roles()
    if roles is None or not roles or "development" in roles:
        return
    for key, reads in (("select", run.select), ("stop", isinstance(run.stop, StopRule))):
        if reads:
            yield Finding(
                ("run", key),
                "reads the development split, and there is none",
                "a development split: in [splits] a share, in [data] a source",
            )


def _qc(valid: Valid, qc: Qc) -> Iterator[Finding]:
    if valid.run and qc.every % valid.run.checkpoint_every:
        yield Finding(
            ("qc", "every"),
            f"is {qc.every}, where not every multiple has a checkpoint",
            f"a multiple of run.checkpoint_every ({valid.run.checkpoint_every})",
        )
    if qc.roster.from_ == "sealed":
        yield Finding(("qc", "roster", "from"), "reads the sealed split, which opens once", "another role")
    roles = valid.roles()
    if roles and qc.roster.from_ not in roles:
        yield Finding(
            ("qc", "roster", "from"), f"reads {qc.roster.from_}, and there is no such split", "a role"
        )
    for name, bounds in qc.fields.items():
        if bounds.low >= bounds.high:
            yield Finding(
                ("qc", "fields", name, "low"), f"is {bounds.low:g}, not below high", "low below high"
            )
        yield from _ends(name, bounds)
    based = [name for name, threshold in qc.fail.items() if "base" in threshold]
    if based and (valid.base is None or valid.base.start not in TRAINS_FROM) and "base" not in valid.present:
        yield Finding(
            ("qc", "fail", based[0]),
            "is held against a base, and the plan has none",
            "a number, or a [base] that training starts from",
        )


def _generate(at: Loc, target: Generate) -> Iterator[Finding]:
    if target.rows is None and target.inputs is None:
        yield Finding(at, "says neither how many rows nor from which inputs", "rows, or inputs")
    if target.samples > 1 and target.inputs is None:
        yield Finding(
            (*at, "samples"), f"is {target.samples}, and there are no inputs", "rows for each input"
        )
    if target.types is not None and target.inputs is None:
        yield Finding((*at, "types"), "is there, and there are no inputs", "types of columns of the inputs")
    if target.batch_rows is not None and target.batch_rows > target.unit_rows:
        yield Finding(
            (*at, "batch_rows"),
            f"is {target.batch_rows}, more than the {target.unit_rows} rows of a unit",
            "at most unit_rows: a batch never spans two units",
        )
    if target.options and target.quality is None:
        rule = Generate.model_fields["quality"].description
        yield Finding((*at, "quality"), "missing, and there are options to compare", rule)
    if "decode" in target.options:
        yield Finding((*at, "options", "decode"), "is the name of the plan's own decoding", "another name")


def _ends(name: str, bounds: FieldBounds) -> Iterator[Finding]:
    """The range of a field, and what may lie at its ends."""
    if bounds.bounds is None:
        if bounds.occupancy is not None:
            yield Finding(("qc", "fields", name, "occupancy"), "needs bounds", "bounds = [low, high]")
        return
    low, high = bounds.bounds
    if low >= high:
        yield Finding(
            ("qc", "fields", name, "bounds"), f"is [{low:g}, {high:g}]", "[low, high], low below high"
        )
    if bounds.space == "log" and low <= 0:
        yield Finding(
            ("qc", "fields", name, "bounds"),
            f"begins at {low:g}",
            "above 0, as every value of a log field is",
        )


def _money(valid: Valid) -> Iterator[Finding]:
    budget = valid.budget
    if budget is not None:
        given = [key for key in ("ceiling_usd", "accelerator_hours") if getattr(budget, key) is not None]
        if len(given) != 1:
            yield Finding(
                ("budget", "ceiling_usd"),
                "missing" if not given else "is there beside accelerator_hours",
                "exactly one of ceiling_usd and accelerator_hours",
            )
        if budget.accelerator_hours is not None and (budget.fixed_usd or budget.scratch_usd):
            yield Finding(
                ("budget", "accelerator_hours"),
                "is not dollars, as fixed_usd and scratch_usd are",
                "ceiling_usd",
            )
    for name, pool in valid.pools.items():
        if pool.usd_per_hour is None and (budget is None or budget.accelerator_hours is None):
            yield Finding(
                ("pools", name, "usd_per_hour"),
                "missing: no rate, no start",
                '{ rate = 2.99, source = "invoice 2026-10", billed = "node" }',
            )
        elif pool.usd_per_hour is not None and pool.usd_per_hour.rate > 0 and "budget" not in valid.present:
            yield Finding(("budget",), f"missing, and {name} costs money", "a table: ceiling_usd, confirm")
