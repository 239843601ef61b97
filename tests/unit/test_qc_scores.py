"""The arithmetic of an examination: metrics beside what no skill scores, fields in their own space, and counts.

covers QC-05, QC-06, QC-07, QC-08, GOLD-26, GOLD-31, I8
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from raykit.qc.classes import MAX_CLASSES, calibration_error, class_scores
from raykit.qc.embedding import effective_rank, embedding_scores
from raykit.qc.fields import (
    MAX_DIMENSIONS,
    Rises,
    all_finite,
    field_score,
    finite_share,
    in_space,
    median_field,
    partners,
)
from raykit.qc.scores import Numbers, Outcome, Term, directions, pooled_ratio, scores, tallies, tally
from raykit.qc.strata import Strata
from raykit.qc.text import text_scores, unigram_entropy
from raykit.records import FieldRule, FieldScore, RosterUnit

LINEAR = FieldRule(space="linear", low=5.0, high=95.0, collapse=0.2)
LOG = FieldRule(space="log", low=5.0, high=95.0, collapse=0.2)


def term(value: float, *, scale: float | None = 1.0, elements: int = 10, weight: float = 1.0) -> Term:
    return Term(value=value, weight=weight, elements=elements, scale=scale)


def unit(number: int, stratum: str = "a") -> RosterUnit:
    return RosterUnit(id=f"u{number:03d}", stratum=stratum, sha256="0" * 64)


def scored(number: int, stratum: str = "a", **numbers: Any) -> Outcome:
    numbers.setdefault("terms", {"fit": term(0.5)})
    return Outcome(unit=unit(number, stratum), end="scored", numbers=Numbers(**numbers))


def ratios(values: Sequence[float], **known: Any) -> list[Outcome]:
    return [scored(i, terms={"fit": term(value, **known)}) for i, value in enumerate(values)]


# --- what is counted ----------------------------------------------------------------------------------------


def test_a_failed_unit_is_neither_a_zero_nor_left_out() -> None:
    # 100 requested, 97 scored, 2 failed, 1 missing
    outcomes: list[Outcome] = ratios([0.4] * 97)
    outcomes += [Outcome(unit=unit(97), end="raised"), Outcome(unit=unit(98), end="nonfinite")]
    outcomes += [Outcome(unit=unit(99, "b"), end="missing")]
    found = scores(outcomes, ["a", "b"])
    assert tally(outcomes).plain() == {"requested": 100, "scored": 97, "failed": 2, "missing": 1}
    by_stratum = tallies(outcomes, ["a", "b"])
    assert by_stratum["a"].plain() == {"requested": 99, "scored": 97, "failed": 2, "missing": 0}
    assert by_stratum["b"].plain() == {"requested": 1, "scored": 0, "failed": 0, "missing": 1}
    assert found["ratio"].value == pytest.approx(
        0.4
    )  # over 97: a zero for each of the three would give 0.388
    assert found["ratio"].strata["b"] is None  # and not 0
    assert (
        found["failed"].value == 0.02 and found["nonfinite"].value == 0.01 and found["missing"].value == 0.01
    )
    assert found["missing"].strata == {"a": 0.0, "b": 1.0}
    assert found["worst.missing"].value == 1.0


def test_without_one_scored_unit_only_the_counts_are_left() -> None:
    found = scores([Outcome(unit=unit(0), end="nonfinite")], ["a"])
    assert set(found) == {
        f"{worst}{name}" for worst in ("", "worst.") for name in ("nonfinite", "failed", "missing")
    }
    assert found["failed"].value == 1.0


# --- ratios -------------------------------------------------------------------------------------------------


def test_predicting_zero_is_exactly_one_and_perfect_is_exactly_zero() -> None:
    targets = np.random.default_rng(7).normal(size=50) ** 2
    zero = [scored(i, terms={"fit": term(float(t), scale=float(t))}) for i, t in enumerate(targets)]
    found = scores(zero, ["a"])
    assert found["ratio"].value == 1.0 and found["ratio_median"].value == 1.0
    assert found["no_skill_share"].value == 1.0
    perfect = [scored(i, terms={"fit": term(0.0, scale=float(t))}) for i, t in enumerate(targets)]
    found = scores(perfect, ["a"])
    assert found["ratio"].value == 0.0 and found["no_skill_share"].value == 0.0
    assert found["ratio"].no_skill == 1.0 and found["ratio"].better == "less"


def test_the_pooled_ratio_weighs_by_elements_and_scale_and_the_median_by_units() -> None:
    outcomes = [
        scored(0, terms={"fit": term(1.0, scale=10.0, elements=100)}),
        scored(1, terms={"fit": term(3.0, scale=2.0, elements=1)}),
        scored(2, terms={"fit": term(0.9, scale=1.0, elements=1)}),
    ]
    found = scores(outcomes, ["a"])
    assert found["ratio"].value == pytest.approx((100 + 3 + 0.9) / (1000 + 2 + 1))
    assert found["ratio_median"].value == pytest.approx(0.9)
    assert found["no_skill_share"].value == pytest.approx(1 / 3)


def test_a_ratio_without_a_scale_above_zero_is_undefined() -> None:
    found = scores(ratios([0.1, 0.2], scale=0.0), ["a"])
    assert found["ratio"].value is None and found["ratio_median"].value is None
    assert found["no_skill_share"].value is None and found["worst.ratio"].value is None
    assert pooled_ratio([]) is None


def test_the_main_term_is_the_first_with_a_scale_and_the_loss_is_the_weighted_sum() -> None:
    terms = {
        "kl": term(4.0, scale=None, weight=0.5, elements=2),
        "recon": term(0.3, scale=0.6),
        "edge": term(0.1, scale=0.4),
    }
    found = scores([scored(0, terms=terms)], ["a"])
    assert found["ratio"].value == 0.5 and found["ratio.recon"].value == 0.5
    assert found["ratio.edge"].value == 0.25 and "ratio.kl" not in found
    assert found["loss"].value == pytest.approx(0.5 * 4.0 + 0.3 + 0.1)
    bare = scores([scored(0, terms={"kl": terms["kl"]})], ["a"])
    assert "ratio" not in bare and bare["loss"].value == 2.0


def test_the_worst_stratum_is_named_and_a_stratum_without_a_value_is_not_it() -> None:
    outcomes = [
        scored(0, "a", terms={"fit": term(0.2)}, metrics={"right": 0.9}),
        scored(1, "b", terms={"fit": term(0.7)}, metrics={"right": 0.4}),
        Outcome(unit=unit(2, "c"), end="nonfinite"),
    ]
    found = scores(outcomes, ["a", "b", "c"], {"worst.right": "< 0.5"})
    assert found["worst.ratio"].value == 0.7 and dict(found["worst.ratio"].strata) == {"b": 0.7}
    assert found["worst.right"].value == 0.4 and found["right"].better == "more"  # as its threshold says
    assert found["ratio"].strata["c"] is None
    assert "worst.right" not in scores(outcomes, ["a", "b", "c"])  # nobody has said what would be worse
    assert directions({"x": "> 1", "worst.y": "<= base - 2"}) == {"x": "less", "y": "more"}


def test_a_number_that_is_not_finite_is_found_wherever_it_is() -> None:
    for broken in (
        {"terms": {"fit": term(math.nan)}},
        {"terms": {"fit": term(1.0, scale=math.inf)}},
        {"metrics": {"m": math.inf}},
        {"nats": math.nan, "content": b"x"},
        {"embedding": np.array([1.0, math.nan])},
        {"probabilities": np.array([math.nan, 1.0]), "label": 0},
    ):
        assert not Numbers(**{"terms": {"fit": term(0.5)}, **broken}).finite(), broken
    assert Numbers(terms={"kl": term(1.0, scale=None)}).finite()
    assert all_finite({"z": np.array([1.0, -1.0])}, {"z": LINEAR})
    assert not all_finite({"z": np.array([1.0, -1.0])}, {"z": LOG})  # no logarithm
    assert not all_finite({"z": np.array([1.0, 0.0])}, {"z": LOG})


# --- classifiers --------------------------------------------------------------------------------------------


def one(strata: Sequence[str]) -> Strata:
    return Strata.of(strata, sorted(set(strata)))


def test_accuracy_stands_beside_the_largest_class() -> None:
    labels = np.array([0, 0, 0, 1])
    probabilities = np.array([[0.9, 0.1]] * 4)
    found = class_scores(probabilities, labels, one("aabb"))
    assert found["accuracy"].value == 0.75 and found["accuracy"].no_skill == 0.75
    assert dict(found["accuracy"].strata) == {"a": 1.0, "b": 0.5}
    assert found["recall.0"].value == 1.0 and found["recall.1"].value == 0.0
    assert found["support.0"].value == 3.0 and found["support.1"].value == 1.0


def test_the_shares_of_the_classes_have_no_skill() -> None:
    labels = np.array([0] * 30 + [1] * 10)
    prior = np.tile([0.75, 0.25], (40, 1))
    found = class_scores(prior, labels, one("a" * 40))
    assert found["brier"].value == pytest.approx(0.375) and found["brier"].no_skill == pytest.approx(0.375)
    assert found["brier_skill"].value == pytest.approx(0.0)
    assert found["calibration_error"].value == pytest.approx(0.0)  # whatever the order
    perfect = class_scores(np.eye(2)[labels], labels, one("a" * 40))
    assert perfect["brier_skill"].value == 1.0 and perfect["calibration_error"].value == 0.0
    only = class_scores(np.eye(2)[labels[:30]], labels[:30], one("a" * 30))
    assert only["brier_skill"].value is None  # knowing the one class is no skill
    assert only["recall.1"].value is None and only["support.1"].value == 0.0


def test_calibration_has_bins_of_equal_mass() -> None:
    confidence = np.linspace(0.5, 1.0, 150)
    right = np.zeros(150, dtype=bool)
    assert calibration_error(confidence, right) == pytest.approx(float(confidence.mean()))
    # fifteen bins of ten, each with its own gap: half of each bin is right
    right[::2] = True
    by_hand = sum(abs(0.5 - confidence[i : i + 10].mean()) for i in range(0, 150, 10)) / 15
    assert calibration_error(confidence, right) == pytest.approx(float(by_hand))
    assert calibration_error(confidence[:1], right[:1]) == pytest.approx(0.5)


def test_a_thousand_classes_are_not_told_of_one_by_one() -> None:
    labels = np.arange(MAX_CLASSES + 1)
    found = class_scores(np.eye(MAX_CLASSES + 1), labels, one("a" * len(labels)))
    assert set(found) == {"accuracy", "calibration_error", "brier", "brier_skill"}


# --- text ---------------------------------------------------------------------------------------------------


def test_a_model_that_knows_how_often_each_byte_comes_has_no_skill() -> None:
    contents = [b"abab", b"aacc" * 3, b""]
    counts = np.bincount(np.frombuffer(b"".join(contents), dtype=np.uint8), minlength=256)
    logs = np.log(counts / counts.sum(), where=counts > 0, out=np.zeros(256))
    nats = np.array([-sum(logs[byte] for byte in content) for content in contents])
    found = text_scores(nats, contents, one("aab"))["bits_per_byte"]
    assert found.value == pytest.approx(found.no_skill) and found.no_skill == pytest.approx(1.5, abs=0.1)
    assert found.strata["b"] is None  # no byte, no bits per byte
    assert unigram_entropy([b"aaaa"]) == 0.0 and unigram_entropy([b""]) is None
    assert unigram_entropy([bytes(range(256))]) == pytest.approx(8.0)


# --- embeddings ---------------------------------------------------------------------------------------------


def test_the_effective_rank_counts_directions() -> None:
    rng = np.random.default_rng(3)
    assert effective_rank(np.eye(16)) == pytest.approx(16.0, rel=1e-3)
    flat = np.outer(rng.normal(size=200), rng.normal(size=16))
    assert effective_rank(flat) == pytest.approx(1.0, abs=1e-3)
    assert effective_rank(np.ones((10, 4))) == pytest.approx(1.0, abs=1e-3)
    assert effective_rank(np.zeros((10, 4))) is None
    wide = rng.normal(size=(200, 16))
    assert effective_rank(wide) == pytest.approx(effective_rank(5.0 * wide))  # scale-free
    found = embedding_scores(np.ones((10, 4)), one("a" * 10))
    assert found["embedding_spread"].value == 0.0 and found["effective_rank"].strata == {}


# --- fields -------------------------------------------------------------------------------------------------


def field(values: Sequence[np.ndarray[Any, Any]], rule: FieldRule, **known: Any) -> FieldScore:
    strata = known.pop("strata", ["a"] * len(values))
    known = {"reference": None, "finite": 1.0, **known}
    return field_score(list(zip(strata, values, strict=True)), rule, sorted(set(strata)), **known)


def test_a_log_field_is_summarized_in_logarithms() -> None:
    values = [np.array([10.0**k]) for k in range(-2, 3)]
    found = field(values, LOG)
    assert found.pooled.median == 0.0
    assert found.pooled.spread == pytest.approx(math.log(10.0) * 4 * 0.9)
    linear = field(values, LINEAR)
    assert linear.pooled.median == 1.0 and linear.pooled.spread == pytest.approx(82.0 - 0.028, rel=0.01)
    assert not np.isfinite(in_space(np.array([0.0, -1.0]), "log")).any()


def test_the_strata_of_a_field_and_its_variance_between_and_within_units() -> None:
    values = [np.array([0.0, 2.0]), np.array([10.0, 12.0]), np.array([0.0, 2.0])]
    found = field(values, LINEAR, strata=["a", "b", "a"])
    assert found.strata["a"].median == 1.0 and found.strata["b"].median == 11.0
    assert found.within == 1.0 and found.between == pytest.approx(np.var([1.0, 11.0, 1.0]))
    assert found.dimensions == 2 and len(found.dimension_spreads) == 2


def test_the_ends_of_a_range_are_the_outer_hundredth_of_it_in_its_own_space() -> None:
    rule = LOG.model_copy(update={"bounds": (1e-4, 1.0), "occupancy": 0.3})
    values = [np.array([1e-4, 1.05e-4, 1e-2, 0.5, 0.999, 1.0])]
    found = field(values, rule)
    # a hundredth of ln(1e4) is 0.092: 1.05e-4 and 0.999 are at the ends; in linear space 0.5e-2 would be, too
    assert found.at_low == pytest.approx(2 / 6) and found.at_high == pytest.approx(2 / 6)
    assert found.outside == 0.0
    beyond = field([np.array([0.5, 1.1, 1e-5])], rule)
    assert beyond.outside == pytest.approx(2 / 3)
    assert field(values, LOG).at_low is None and field(values, LOG).outside is None


def test_a_dimension_that_is_the_same_for_every_unit_is_dead_however_wide_the_field_is() -> None:
    rng = np.random.default_rng(11)
    alive = [rng.normal(size=4) for _ in range(100)]
    first = field(alive, LINEAR)
    assert first.dead == () and len(first.dimension_spreads) == 4
    pinned = [np.array([v[0], 3.0, v[2], -3.0]) for v in alive]
    now = field(pinned, LINEAR, reference=first)
    assert now.pooled.spread > first.pooled.spread and now.dead == (1, 3)
    assert now.reference_spread == first.pooled.spread
    shrunk = [v * np.array([1.0, 0.21, 1.0, 0.19]) for v in alive]
    assert field(shrunk, LINEAR, reference=first).dead == (3,)


def test_units_of_other_sizes_and_large_fields_have_no_dimensions_to_tell_of() -> None:
    ragged = field([np.zeros(2), np.ones(3)], LINEAR)
    assert ragged.dimensions == 0 and ragged.dimension_spreads == ()
    large = field([np.zeros(MAX_DIMENSIONS + 1), np.ones(MAX_DIMENSIONS + 1)], LINEAR)
    assert large.dimensions == MAX_DIMENSIONS + 1 and large.dimension_spreads == ()
    alone = field([np.array([1.0])], LINEAR)
    assert alone.pooled.median == 1.0 and alone.pooled.spread is None
    nothing = field([], LINEAR)
    assert nothing.pooled.median is None and nothing.between is None and nothing.dimensions == 0


def test_the_share_of_finite_values_counts_units_that_failed() -> None:
    values = [np.array([1.0, math.nan]), np.array([1.0, 1.0])]
    assert finite_share(values, "linear") == 0.75
    assert finite_share([np.array([1.0, -1.0])], "log") == 0.5
    assert finite_share([], "linear") == 0.0
    assert field(values[1:], LINEAR, finite=0.75, rises=Rises(permuted=0.1)).rise_permuted == 0.1


def test_everyone_gets_the_field_of_somebody_else_of_the_same_shape() -> None:
    ids = [f"u{i}" for i in range(57)]
    units = [(id, (8,)) for id in ids] + [("long", (9,)), ("x", (3,)), ("y", (3,))]
    found = partners(units, revision=1)
    assert sorted(found) == sorted(set(found.values())) == sorted([*ids, "x", "y"])
    assert all(one != other for one, other in found.items())
    assert found["x"] == "y" and "long" not in found
    assert found == partners(units[::-1], revision=1)  # whatever the order
    assert found != partners(units, revision=2)


def test_the_median_field_is_taken_in_its_own_space() -> None:
    values = [np.array([[1.0, 2.0]]), np.array([[100.0, 4.0]])]
    log = median_field(values, "log")
    assert log is not None and log.shape == (1, 2)
    assert log[0, 0] == pytest.approx(10.0) and log[0, 1] == pytest.approx(math.sqrt(8.0))
    linear = median_field(values, "linear")
    assert linear is not None and linear[0, 0] == 50.5
    assert median_field([np.zeros(2), np.zeros(3)], "linear") is None
