"""What the numbers of a checkpoint mean: planted faults are named at once, and two hundred clean suites pass.

covers QC-05 to QC-09, QC-24, GOLD-28, I8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from raykit.qc.fields import Rises, field_score
from raykit.qc.scores import Numbers, Outcome, Term, scores, tallies, tally
from raykit.qc.verdict import RANK_KEPT, Found, Judged, fails, judge, limit_of
from raykit.records import FieldRule, QcFinding, Receipt, RosterUnit, Suite

ZERO = "0" * 64
LINEAR = FieldRule(space="linear", low=5.0, high=95.0, collapse=0.2)
LOG = FieldRule(space="log", low=5.0, high=95.0, collapse=0.2)

Array = np.ndarray[Any, Any]


def suite(fail: Mapping[str, str] | None = None, **known: Any) -> Suite:
    return Suite(
        experiment="clean",
        owner="ada",
        every=10,
        root="experiments/clean/qc",
        roster=ZERO,
        code=ZERO,
        config=ZERO,
        revision=1,
        recipe="recipe:Clean",
        params={},
        seed=1,
        threads=1,
        deterministic=True,
        dtype="float32",
        autocast="none",
        fail={"ratio": "> 0.9"} if fail is None else fail,
        **known,
    )


@dataclass
class Checkpoint:
    """What a model makes of each unit, as plain arrays: first axis units. Tests break it where they want."""

    strata: list[str]
    errors: Array
    """Mean square errors."""
    scales: Array
    """Mean squares of the targets."""
    fields: dict[str, Array] = field(default_factory=dict)
    probabilities: Array | None = None
    labels: Array | None = None
    nats: Array | None = None
    contents: list[bytes] = field(default_factory=list)
    embeddings: Array | None = None
    metrics: dict[str, Array] = field(default_factory=dict)
    rises: dict[str, Rises] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)
    """By unit: how it ended, if it was not scored."""

    def outcomes(self) -> list[Outcome]:
        return [self._outcome(i) for i in range(len(self.strata))]

    def _outcome(self, i: int) -> Outcome:
        unit = RosterUnit(id=f"u{i:03d}", stratum=self.strata[i], sha256=ZERO)
        end: Any = self.ends.get(i, "scored")
        if end != "scored":
            return Outcome(unit=unit, end=end)
        numbers = Numbers(
            terms={
                "fit": Term(value=float(self.errors[i]), weight=1.0, elements=64, scale=float(self.scales[i]))
            },
            metrics={name: float(values[i]) for name, values in self.metrics.items()},
            embedding=None if self.embeddings is None else self.embeddings[i],
            probabilities=None if self.probabilities is None else self.probabilities[i],
            label=None if self.labels is None else int(self.labels[i]),
            nats=None if self.nats is None else float(self.nats[i]),
            content=self.contents[i] if self.contents else None,
        )
        finite = numbers.finite()
        return Outcome(
            unit=unit, end="scored" if finite else "nonfinite", numbers=numbers if finite else None
        )

    def found(self, of: Suite, update: int, reference: Receipt | None) -> Found:
        outcomes = self.outcomes()
        names = sorted(set(self.strata))
        ids = {
            end: [o.unit.id for o in outcomes if o.end == end] for end in ("nonfinite", "raised", "missing")
        }
        return Found(
            update=update,
            units=tally(outcomes),
            strata=tallies(outcomes, names),
            metrics=scores(outcomes, names, of.fail),
            fields={
                name: field_score(
                    [(o.unit.stratum, self.fields[name][i]) for i, o in enumerate(outcomes) if o.numbers],
                    rule,
                    names,
                    reference=None if reference is None else reference.fields.get(name),
                    finite=1.0,
                    rises=self.rises.get(name, Rises()),
                )
                for name, rule in of.fields.items()
            },
            **ids,
        )


def receipt(of: Suite, checkpoint: Checkpoint, update: int = 0, reference: Receipt | None = None) -> Receipt:
    found = checkpoint.found(of, update, reference)
    judged = judge(of, found, reference)
    return Receipt(
        request=ZERO,
        experiment="clean",
        run="main",
        update=update,
        checkpoint=ZERO,
        suite=of.digest,
        roster=ZERO,
        code=ZERO,
        config=ZERO,
        revision=1,
        reference=None if reference is None else reference.digest,
        facts={},
        units=found.units,
        strata=found.strata,
        metrics=found.metrics,
        fields=found.fields,
        unjudged=judged.unjudged,
        findings=judged.findings,
        verdict=judged.verdict,
    )


def named(findings: Sequence[QcFinding]) -> list[tuple[str, str, str | None]]:
    return [(finding.kind, finding.what, finding.stratum) for finding in findings]


# --- clean models -------------------------------------------------------------------------------------------


@dataclass
class World:
    """A data set and a model that learns it: everything random about both comes from one seed."""

    seed: int
    least: int = 1
    """Strata and dimensions that there are at least: with one, whatever is lost is everything."""

    def __post_init__(self) -> None:
        self.rng = rng = np.random.default_rng(self.seed)
        names = [f"s{i}" for i in range(rng.integers(self.least, 7))]
        self.strata = [name for name in names for _ in range(rng.integers(6, 26))]
        self.count = len(self.strata)
        self.scales = rng.uniform(0.2, 3.0, self.count)
        self.difficulty = rng.lognormal(0.0, rng.uniform(0.1, 0.5), self.count)
        self.dims = int(rng.integers(self.least, 13))
        self.latent = rng.normal(size=(self.count, self.dims))
        self.centre = rng.normal(size=self.dims)
        self.growth = rng.uniform(0.6, 8.0, self.dims)
        self.classes = int(rng.integers(2, 12))
        self.labels = rng.integers(0, self.classes, self.count)
        self.labels[: self.classes] = np.arange(self.classes)[: self.count]
        alphabet = rng.dirichlet(np.ones(20) * 2.0)
        self.contents = [
            bytes(rng.choice(20, size=rng.integers(20, 80), p=alphabet).astype(np.uint8)) for _ in names
        ]
        self.contents = [self.contents[names.index(name)] for name in self.strata]
        self.width = int(rng.integers(4, 33))
        self.kinds = set(rng.choice(["classes", "text", "embedding"], size=2, replace=False))

    def suite(self) -> Suite:
        fail = {"ratio": "> 0.95", "no_skill_share": ">= 0.5", "worst.ratio": "> 1.2", "spare": "> 50"}
        if "classes" in self.kinds:
            fail |= {"accuracy": "< 0.4", "calibration_error": "> 0.6", "brier_skill": "< base + 0.01"}
        if "text" in self.kinds:
            fail |= {"bits_per_byte": ">= base - 0.2"}
        code = LINEAR.model_copy(update={"used": 0.02})
        scale = LOG.model_copy(update={"bounds": (1e-4, 1e4), "occupancy": 0.5})
        return suite(fail, metrics=("loss",), fields={"code": code, "scale": scale})

    def at(self, progress: float) -> Checkpoint:
        """The model after that share of its training, 0 to 1."""
        rng = self.rng
        left = 1.15 - 1.05 * progress**0.7
        drift = 1.0 + (self.growth - 1.0) * progress
        code = (self.latent + 0.3 * rng.normal(size=self.latent.shape)) * drift + self.centre * progress
        found = Checkpoint(
            strata=self.strata,
            errors=self.scales * left * np.clip(self.difficulty, 0.7, 1.3),
            scales=self.scales,
            fields={"code": code, "scale": np.exp(6.0 * np.tanh(code / 20.0))},
            metrics={"spare": rng.uniform(0.0, 1.0, self.count)},
            rises={"code": Rises(permuted=0.5 * progress + 0.001 * rng.normal(), median=0.3 * progress)},
        )
        if "classes" in self.kinds:
            logits = rng.normal(size=(self.count, self.classes))
            logits[np.arange(self.count), self.labels] += 10.0 * progress
            shares = np.exp(logits)
            found.probabilities, found.labels = shares / shares.sum(axis=1, keepdims=True), self.labels
        if "text" in self.kinds:
            per_byte = (8.0 - 4.5 * progress) * math.log(2.0)
            found.contents = self.contents
            found.nats = np.array([len(c) * per_byte * rng.uniform(0.95, 1.05) for c in self.contents])
        if "embedding" in self.kinds:
            decay = np.exp(-np.arange(self.width) * (0.05 + 0.25 * progress))
            found.embeddings = rng.normal(size=(self.count, self.width)) * decay + progress
        return found


def test_two_hundred_clean_suites_raise_no_finding() -> None:
    print("seeds 0 to 199")
    units = 0
    for seed in range(200):
        world = World(seed)
        asked = world.suite()
        first = receipt(asked, world.at(0.0))
        assert first.verdict == "passed", (seed, first.findings)
        assert set(first.unjudged) == {*asked.fail, "loss", "code.used"}, seed
        for update, progress in ((10, 0.35), (20, 0.7), (30, 1.0)):
            found = receipt(asked, world.at(progress), update, first)
            assert found.findings == () and found.verdict == "passed", (seed, update, found.findings)
            assert found.unjudged == ()
            units += found.units.scored
    print(f"{units} units scored after update 0")


# --- planted faults: flagged at the first checkpoint that shows them, and named --------------------------------

Plant = Callable[[Checkpoint], None]


def collapse(found: Checkpoint) -> None:
    """A latent pinned near one value, while reconstruction stays as good as it was."""
    found.fields["code"] = 0.37 + 1e-4 * np.sign(found.fields["code"])


def constant(found: Checkpoint) -> None:
    found.fields["scale"] = np.ones_like(found.fields["scale"])


def dead_dimension(found: Checkpoint) -> None:
    found.fields["code"][:, 0] = 2.5


def nan_stratum(found: Checkpoint) -> None:
    members = [i for i, name in enumerate(found.strata) if name == "s0"]
    found.errors[members] = math.nan


def stranger(found: Checkpoint) -> None:
    """The outputs of other units: the error is that between two units, and the label that of another one."""
    found.errors = found.scales + np.roll(found.scales, 1)
    if found.probabilities is not None:
        found.probabilities = np.roll(found.probabilities, 1, axis=0)


def ignored(found: Checkpoint) -> None:
    found.rises["code"] = Rises(permuted=0.0001, median=0.3)


def at_the_end(found: Checkpoint) -> None:
    found.fields["scale"][: 3 * len(found.strata) // 4] = 1e4


def beyond(found: Checkpoint) -> None:
    found.fields["scale"][0] = 1.2e4


PLANTED: dict[str, tuple[Plant, set[tuple[str, str, str | None]]]] = {
    "collapse": (collapse, {("collapsed", "code", None)}),
    "constant": (constant, {("collapsed", "scale", None)}),
    "dead dimension": (dead_dimension, {("dead-dimension", "code", None)}),
    "NaN stratum": (nan_stratum, {("nonfinite", "nonfinite", None), ("stratum-lost", "scored", "s0")}),
    "label-permuted": (stranger, {("threshold", "ratio", None), ("threshold", "no_skill_share", None)}),
    "unused": (ignored, {("unused", "code", None)}),
    "at an end of its range": (at_the_end, {("at-bound", "scale", None)}),
    "beyond its range": (beyond, {("range", "scale", None)}),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_flagged_at_the_first_checkpoint_that_shows_it(fault: str) -> None:
    plant, wanted = PLANTED[fault]
    print("seeds 1000 to 1019")
    for seed in range(1000, 1020):
        world = World(seed, least=2)
        asked = world.suite()
        first = receipt(asked, world.at(0.0))
        assert receipt(asked, world.at(0.5), 10, first).verdict == "passed", seed
        broken = world.at(0.6)
        plant(broken)
        found = receipt(asked, broken, 20, first)
        assert found.verdict == "failed"
        assert wanted <= set(named(found.findings)), (seed, found.findings)
        if fault != "label-permuted" and "scale" not in str(
            wanted
        ):  # nothing but the fault, and its own dimensions
            others = set(named(found.findings)) - wanted
            assert others <= {("dead-dimension", "code", None)}, (seed, others)


def test_a_pinned_latent_fails_although_the_reconstruction_passes() -> None:
    # covers GOLD-28, QC-09
    world = World(5)
    asked = world.suite()
    first = receipt(asked, world.at(0.0))
    broken = world.at(1.0)
    collapse(broken)
    found = receipt(asked, broken, 30, first)
    assert found.metrics["ratio"].value is not None and found.metrics["ratio"].value < 0.5
    finding = next(each for each in found.findings if each.kind == "collapsed")
    assert finding.what == "code" and finding.rule == "at least 0.2 of it"
    assert finding.found.startswith("spread 0.0002, ") and finding.found.endswith(" at update 0")
    dead = next(each for each in found.findings if each.kind == "dead-dimension")
    assert dead.found.startswith(f"{world.dims} of {world.dims} dimensions: 0, 1")


def test_a_field_that_is_the_same_for_every_unit_is_dead_where_its_dimensions_differ() -> None:
    """Posterior collapse: pooled over dimensions the spread has even grown."""
    world = World(6, least=2)
    asked = world.suite()
    first = receipt(asked, world.at(0.0))
    broken = world.at(0.8)
    row = np.linspace(-9.0, 9.0, world.dims)
    broken.fields["code"] = np.tile(row, (world.count, 1))
    assert named(receipt(asked, broken, 20, first).findings) == [("dead-dimension", "code", None)]


def test_a_constant_field_fails_at_update_0_and_an_untrained_model_does_not() -> None:
    world = World(7)
    asked = world.suite()
    broken = world.at(0.0)
    constant(broken)
    found = receipt(asked, broken)
    assert named(found.findings) == [("collapsed", "scale", None)]
    assert found.findings[0].found.startswith("constant: ")
    assert "ratio" in found.unjudged and found.metrics["ratio"].value > 0.95


def test_embeddings_that_fall_onto_one_direction_have_collapsed() -> None:
    asked = suite({"ratio": "> 0.9"})
    rng = np.random.default_rng(8)

    def at(embeddings: Array) -> Checkpoint:
        ones = np.ones(60)
        return Checkpoint(["a"] * 60, errors=0.2 * ones, scales=ones, embeddings=embeddings)

    first = receipt(asked, at(rng.normal(size=(60, 16))))
    line = np.outer(rng.normal(size=60), rng.normal(size=16))
    assert named(receipt(asked, at(line), 10, first).findings) == [("collapsed", "effective_rank", None)]
    for same in (np.ones((60, 16)), np.zeros((60, 16))):
        found = receipt(asked, at(same), 10, first)
        assert named(found.findings) == [("collapsed", "effective_rank", None)]
        assert found.findings[0].found == "embeddings are the same for every unit"
    half = rng.normal(size=(60, 16)) * np.exp(-np.arange(16) / 2)  # it spans fewer, and not a tenth
    assert receipt(asked, at(half), 10, first).verdict == "passed"
    assert receipt(asked, at(np.zeros((60, 16)))).verdict == "passed"  # a head that begins at zero
    assert RANK_KEPT == 0.1


# --- thresholds ---------------------------------------------------------------------------------------------


def plain(ratio: float = 0.5, units: int = 10, **known: Any) -> Checkpoint:
    ones = np.ones(units)
    strata = known.pop("strata", ["a"] * units)
    return Checkpoint(strata, errors=ratio * ones, scales=ones, **known)


def verdict(asked: Suite, found: Checkpoint, update: int = 10, reference: Receipt | None = None) -> Judged:
    return judge(asked, found.found(asked, update, reference), reference)


@pytest.mark.parametrize(
    ("rule", "value", "failed"),
    [
        ("> 0.5", 0.5, False),
        ("> 0.5", 0.5000001, True),
        (">= 0.5", 0.5, True),
        (">=0.5", 0.49, False),
        ("< 0.5", 0.5, False),
        ("< -1e-3", -0.002, True),
        ("<= 0.5", 0.5, True),
        ("> base + 0.01", 0.311, True),
        ("> base + 0.01", 0.309, False),
        (">= base - 0.1", 0.2, True),
        ("< base + -0.1", 0.19, True),
        ("<= base-0.1", 0.21, False),
    ],
)
def test_a_threshold_names_what_fails(rule: str, value: float, failed: bool) -> None:
    limit = limit_of(rule, 0.3)
    assert limit is not None and fails(rule, value, round(limit, 9)) is failed


def test_a_threshold_says_what_it_found_and_what_it_is_held_against() -> None:
    asked = suite({"ratio": ">= base + 0.01", "loss": "> 5"}, from_base=True)
    base = receipt(asked, plain(0.3))
    assert base.verdict == "passed" and base.unjudged == ("ratio",)  # nothing to hold the base itself against
    assert verdict(asked, plain(0.305), reference=base).verdict == "passed"
    (found,) = verdict(asked, plain(0.32), reference=base).findings
    assert (found.kind, found.what, found.found) == ("threshold", "ratio", "0.32")
    assert found.rule == "fails if >= base + 0.01 (base 0.3)"


def test_a_threshold_on_what_nothing_reports_is_undefined_and_never_passed() -> None:
    asked = suite({"speed": "> 1", "ratio": "> 0.9"}, metrics=("bits_per_byte", "ratio"))
    found = verdict(asked, plain(0.5))
    assert named(found.findings) == [("undefined", "speed", None), ("undefined", "bits_per_byte", None)]
    undefined = plain(0.5)
    undefined.scales[:] = 0.0
    assert named(verdict(suite(), undefined).findings) == [("undefined", "ratio", None)]
    held = suite({"ratio": "> base + 0.1"})
    without = receipt(held, undefined)
    (finding,) = verdict(held, plain(0.5), reference=without).findings
    assert finding.kind == "undefined" and "update 0" in finding.found


def test_a_name_that_nothing_reports_is_a_finding_at_update_0_already() -> None:
    asked = suite({"raito": "> 0.9", "ratio": "> 0.9"}, metrics=("bits_per_byte", "loss"))
    found = verdict(asked, plain(1.1), update=0)
    assert named(found.findings) == [("undefined", "raito", None), ("undefined", "bits_per_byte", None)]
    assert {each.found for each in found.findings} == {"nothing reports it"}
    assert found.unjudged == ("ratio", "loss") and found.verdict == "failed"
    held = suite({"raito": "> base + 0.1"}, from_base=True)
    assert named(verdict(held, plain(1.1), update=0).findings) == [("undefined", "raito", None)]
    undefined = plain(0.5)  # it is reported; what it is a share of is not there yet
    undefined.scales[:] = 0.0
    assert verdict(suite(), undefined, update=0) == Judged(("ratio",), (), "passed")


def test_update_0_is_judged_by_quality_only_where_training_starts_from_weights() -> None:
    scratch, based = suite({"ratio": "> 0.9"}), suite({"ratio": "> 0.9"}, from_base=True)
    assert verdict(scratch, plain(1.1), update=0) == Judged(("ratio",), (), "passed")
    assert named(verdict(based, plain(1.1), update=0).findings) == [("threshold", "ratio", None)]
    assert named(verdict(scratch, plain(1.1), update=10).findings) == [("threshold", "ratio", None)]


def test_how_much_a_field_is_used_is_undefined_where_the_recipe_cannot_be_asked() -> None:
    asked = suite(fields={"code": LINEAR.model_copy(update={"used": 0.1})})
    found = plain(0.5, fields={"code": np.arange(10.0)[:, None]})
    assert named(verdict(asked, found).findings) == [("undefined", "code", None)]
    assert verdict(asked, found, update=0).unjudged == ("ratio", "code.used")
    found.rises["code"] = Rises(permuted=0.1)
    assert verdict(asked, found).verdict == "passed"  # exactly what was asked for


# --- what could not be scored -------------------------------------------------------------------------------


@pytest.mark.parametrize("update", [0, 10])
@pytest.mark.parametrize(
    ("end", "kind", "what"),
    [
        ("nonfinite", "nonfinite", "nonfinite"),
        ("raised", "nonfinite", "failed"),
        ("missing", "missing", "missing"),
    ],
)
def test_one_unit_that_was_not_scored_fails_the_checkpoint(
    end: str, kind: str, what: str, update: int
) -> None:
    (found,) = verdict(suite(), plain(0.5, ends={3: end}), update=update).findings
    assert (found.kind, found.what) == (kind, what)
    assert found.found.startswith("1 of 10 units ") and found.found.endswith(": u003")


def test_a_threshold_of_the_plan_says_how_many_may_fail_and_applies_at_update_0() -> None:
    lenient = suite({"ratio": "> 0.9", "failed": "> 0.1", "missing": "> 0"})
    for end in ("nonfinite", "raised"):
        assert verdict(lenient, plain(0.5, ends={3: end}), update=0).verdict == "passed"
    two = plain(0.5, ends={3: "raised", 4: "nonfinite"})
    assert named(verdict(lenient, two, update=0).findings) == [("threshold", "failed", None)]
    gone = plain(0.5, ends={3: "missing"})
    assert named(verdict(lenient, gone, update=0).findings) == [("threshold", "missing", None)]
    # one that is held against update 0 excuses nothing there
    held = suite({"ratio": "> 0.9", "missing": "> base + 0.2"}, from_base=True)
    assert named(verdict(held, gone, update=0).findings) == [("missing", "missing", None)]
    assert verdict(held, gone, reference=receipt(held, gone)).verdict == "passed"
    # a threshold on what is not finite says nothing of units that cannot be read
    narrow = suite({"ratio": "> 0.9", "nonfinite": "> 0.5"})
    assert named(verdict(narrow, two).findings) == [("nonfinite", "failed", None)]


def test_a_lost_stratum_is_named_whatever_else_is_allowed() -> None:
    asked = suite({"ratio": "> 0.9", "failed": "> 0.9"})
    found = plain(0.5, strata=["a"] * 8 + ["b"] * 2, ends={8: "nonfinite", 9: "raised"})
    (finding,) = verdict(asked, found, update=0).findings
    assert (finding.kind, finding.stratum) == ("stratum-lost", "b")
    assert finding.found == "0 of 2 units scored: 2 failed, 0 missing"


def test_findings_are_the_same_text_whenever_they_are_made() -> None:
    world = World(9)
    asked = world.suite()
    first = receipt(asked, world.at(0.0))
    broken = world.at(0.5)
    for plant, _ in PLANTED.values():
        plant(broken)
    one, two = (receipt(asked, broken, 10, first) for _ in range(2))
    assert one.to_bytes() == two.to_bytes() and len(one.findings) > 5
    assert Receipt.from_bytes(one.to_bytes(), "receipt") == one
