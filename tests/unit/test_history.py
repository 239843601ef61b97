"""History rules: the scale-free ratio, gaps and duplicates, collapse, smoothing, patience."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raykit import history
from raykit.errors import CorruptError
from raykit.ids import sha256
from raykit.reconcile import RunState, fold
from raykit.records import Commit, Record, Row, RunEntry, Segment, Series, Superseded, TermRow

D = sha256(b"")


def segment(first: int, last: int, *, attempt: int = 1, series: Series = "train") -> Segment:
    return Segment(series=series, attempt=attempt, first=first, last=last, key="k", sha256=D, size_bytes=1)


def superseded(first: int, last: int) -> Superseded:
    return Superseded.model_validate({"from": first, "to": last, "why": "resume"})


def commit(update: int, attempt: int = 1) -> Commit:
    return Commit(
        update=update,
        attempt=attempt,
        key="k",
        sha256=D,
        size_bytes=1,
        exactness="exact",
        reason="cadence",
        save_s=0.0,
        blocked_s=0.0,
    )


def row(update: int, **changes: object) -> Row:
    plain = {
        "attempt": 1,
        "update": update,
        "epoch": 0,
        "samples": (64 * (update - 1), 64 * update),
        "sources": {"0": 64},
        "loss": 0.5,
        "terms": {"recon": term(0.5, 1.0)},
        "lr": (0.001,),
        "grad_norm": 1.0,
        "clipped": False,
        "elapsed_s": 0.1,
    }
    return Row.model_validate({**plain, **changes})


def term(value: float, target_ms: float) -> TermRow:
    return history.term_row(value=value, weight=2.0, elements=64, target_ms=target_ms)


# --- the ratio ----------------------------------------------------------------------------------------------


def test_the_worked_example_of_the_ratio() -> None:
    # covers GOLD-25, HIST-09, HIST-10
    found = term(0.0048, 0.0061)
    assert found.ratio is not None
    assert f"{found.ratio:.3f}" == "0.787"
    assert f"{found.ratio:.5f}" == "0.78689"
    assert found.target_ms == 0.0061
    assert found.contribution == 0.0096


def test_a_loss_in_physical_units_is_no_evidence_of_fit() -> None:
    # covers GOLD-25, HIST-11: 0.0048 looks small and says nothing; 0.787 of no skill is hardly a fit
    found = term(0.0048, 0.0061)
    assert found.value is not None
    assert found.value < 0.35
    assert history.fits(found, below=0.35) is False
    assert history.fits(found, below=0.8) is True
    bare = history.term_row(value=0.0048, weight=1.0, elements=64, no_reference="a penalty on the latents")
    assert history.fits(bare, below=0.35) is None
    assert bare.no_reference == "a penalty on the latents"


def test_no_skill_is_exactly_one_and_perfect_exactly_zero() -> None:
    # covers GOLD-26
    rng = random.Random(26)
    for _ in range(100):
        target = np.array([rng.gauss(0.0, 10.0 ** rng.randint(-9, 9)) for _ in range(33)])
        mean_square = float(np.mean(target**2))
        predicting_zero = float(np.mean((np.zeros(33) - target) ** 2))
        assert term(predicting_zero, mean_square).ratio == 1.0
        assert term(0.0, mean_square).ratio == 0.0


def test_a_target_of_zero_leaves_the_ratio_undefined_and_says_so() -> None:
    # covers GOLD-26
    found = term(0.25, 0.0)
    assert found.ratio is None
    assert found.target_ms == 0.0
    assert found.no_reference == "what no skill scores is zero here"
    assert history.fits(found, below=1.0) is None
    assert TermRow.from_bytes(found.to_bytes(), "it") == found


def test_cross_entropy_is_measured_against_ln_c() -> None:
    found = history.term_row(value=math.log(10), weight=1.0, elements=8, reference=math.log(10))
    assert found.ratio == 1.0
    assert found.target_ms is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_never_a_number(value: float) -> None:
    found = term(value, 0.5)
    assert (found.value, found.contribution, found.ratio) == (None, None, None)
    assert found.no_reference is None
    unscaled = history.term_row(value=0.5, weight=1.0, elements=1, reference=value)
    assert (unscaled.reference, unscaled.ratio) == (None, None)


def test_same_bits_leaves_out_times_and_attempts_only() -> None:
    one = row(3)
    assert history.same_bits(one) == history.same_bits(row(3, attempt=2, elapsed_s=9.0))
    assert history.same_bits(one) != history.same_bits(row(3, loss=math.nextafter(0.5, 1.0)))
    assert history.same_bits(one) != history.same_bits(row(3, samples=(0, 64)))


# --- which rows count ---------------------------------------------------------------------------------------


def test_after_row_n_comes_row_n_plus_1_and_nothing_else() -> None:
    # covers GOLD-27, HIST-15, HIST-16
    n = 40
    rows = [row(update) for update in range(1, n + 1)]
    assert [r.update for r in history.check_rows([*rows, row(n + 1)])] == list(range(1, n + 2))
    with pytest.raises(CorruptError, match=f"has update {n} twice"):
        list(history.check_rows([*rows, row(n)]))
    with pytest.raises(CorruptError, match=f"gap: update {n + 1} is missing"):
        list(history.check_rows([*rows, row(n + 2)]))


def test_after_segment_to_n_comes_n_plus_1_and_nothing_else() -> None:
    # covers GOLD-27, HIST-15, HIST-16, I4
    first = segment(1, 40)
    spans = history.lineage([first, segment(41, 50, attempt=2)], "train")
    assert [(s.first, s.last, s.segment.attempt) for s in spans] == [(1, 40, 1), (41, 50, 2)]
    for wrong, why in [
        (segment(40, 50), "update 40 twice"),
        (segment(42, 50), "updates 41 to 41 are missing"),
    ]:
        with pytest.raises(CorruptError, match=why):
            history.lineage([first, wrong], "train")
        with pytest.raises(CorruptError, match=why):
            state([first, wrong]).recorded()


def test_a_history_that_does_not_begin_at_one_is_a_gap() -> None:
    # covers HIST-02
    with pytest.raises(CorruptError, match="updates 1 to 1 are missing"):
        history.lineage([segment(2, 5)], "train")


def test_superseded_rows_are_cut_and_written_anew() -> None:
    events = [segment(1, 10), segment(11, 20), superseded(15, 20), segment(15, 18, attempt=2)]
    spans = history.lineage(events, "train")
    assert [(s.first, s.last, s.segment.last) for s in spans] == [(1, 10, 10), (11, 14, 20), (15, 18, 18)]
    assert state(events).recorded() == 18


def test_only_a_tail_can_be_superseded() -> None:
    events = [segment(1, 20), superseded(15, 17)]
    with pytest.raises(CorruptError, match="the later ones to 20 are not"):
        history.lineage(events, "train")
    with pytest.raises(CorruptError, match="the later ones to 20 are not"):
        state(events).recorded()


def test_other_series_have_gaps_by_design_and_are_cut_as_well() -> None:
    events = [
        segment(0, 200, series="development"),
        segment(1, 450),
        segment(400, 400, series="development"),
        superseded(201, 450),
    ]
    assert [(s.first, s.last) for s in history.lineage(events, "development")] == [(0, 200)]


def state(events: Sequence[Record]) -> RunState:
    return fold([RunEntry(n=1, prev=None, at=1.0, by="t", nonce="n", events=tuple(events))])  # type: ignore[arg-type]


class Lineage(RuleBasedStateMachine):
    """Whatever attempts do, the lineage is rows 1 to N of the attempt that counts, or an error."""

    @initialize()
    def begin(self) -> None:
        self.events: list[Record] = []
        self.rows: list[int] = []  # rows[i] is the attempt that update i + 1 counts from
        self.commits: list[int] = []
        self.attempt = 1
        self.broken = False

    @rule(count=st.integers(1, 5), skew=st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1]))
    def write(self, count: int, skew: int) -> None:
        first = max(1, len(self.rows) + 1 + skew)
        if first != len(self.rows) + 1:
            self.broken = True
        self.events.append(segment(first, first + count - 1, attempt=self.attempt))
        self.rows += [self.attempt] * count

    @rule()
    def save(self) -> None:
        self.events.append(commit(len(self.rows), self.attempt))
        self.commits.append(len(self.rows))

    @precondition(lambda self: self.commits)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(self.commits))
        self.events.append(superseded(start + 1, max(start, len(self.rows))))
        del self.rows[start:]
        self.commits = [update for update in self.commits if update <= start]
        self.attempt += 1

    @invariant()
    def rows_are_1_to_n_or_it_says_why_not(self) -> None:
        found = state(self.events)
        if self.broken:
            with pytest.raises(CorruptError):
                history.lineage(self.events, "train")
            with pytest.raises(CorruptError):
                found.recorded()
            return
        spans = history.lineage(self.events, "train")
        rows = [(update, s.segment.attempt) for s in spans for update in range(s.first, s.last + 1)]
        assert rows == list(enumerate(self.rows, start=1))
        assert found.recorded() == len(self.rows)
        assert [c.update for c in found.commits] == self.commits


Lineage.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestLineage = Lineage.TestCase


# --- collapse -----------------------------------------------------------------------------------------------


def field(values: Sequence[float], reference: float | None = None, collapse: float = 0.2):  # type: ignore[no-untyped-def]
    return history.field_stats(
        values, space="log", low=5.0, high=95.0, collapse=collapse, reference_spread=reference
    )


def test_a_field_pinned_near_one_value_has_collapsed() -> None:
    # covers GOLD-28
    rng = random.Random(28)
    healthy = field([rng.gauss(0.0, 1.0) for _ in range(400)])
    assert not healthy.collapsed
    assert healthy.reference_spread == healthy.spread
    pinned = field([3.0 + rng.gauss(0.0, 0.01) for _ in range(400)], healthy.spread)
    assert pinned.collapsed
    assert pinned.reference_spread == healthy.spread
    values = [float(i) for i in range(21)]  # the 5th percentile is 1, the 95th 19, the spread 18
    assert not field(values, reference=72.0, collapse=0.25).collapsed
    assert field(values, reference=math.nextafter(72.0, 73.0), collapse=0.25).collapsed


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, 2.0, math.inf], [7.0] * 9])
def test_a_field_without_spread_or_finite_values_has_collapsed(values: list[float]) -> None:
    assert field(values).collapsed
    assert field(values, reference=1.0).collapsed


def test_percentiles_are_those_of_numpy() -> None:
    rng = random.Random(5)
    for size in (1, 2, 3, 10, 101):
        values = sorted(rng.gauss(0.0, 1.0) for _ in range(size))
        for q in (0.0, 5.0, 33.3, 50.0, 95.0, 100.0):
            assert history.percentile(values, q) == pytest.approx(
                float(np.percentile(values, q)), rel=1e-12, abs=1e-15
            )
        assert history.percentile(values, 0.0) == values[0]
        assert history.percentile(values, 100.0) == values[-1]


# --- smoothing and stopping ---------------------------------------------------------------------------------


def test_the_smoothed_trend_starts_unbiased_and_passes_over_what_is_undefined() -> None:
    # covers HIST-14
    assert history.ema([2.0, 2.0, 2.0], 0.98) == pytest.approx([2.0, 2.0, 2.0])
    assert history.ema([], 0.9) == []
    assert (history.ema_lag(0.98), history.ema_lag(0.5)) == (49, 1)
    gap = history.ema([None, 4.0, None, 0.0], 0.5)
    assert gap == pytest.approx([None, 4.0, 4.0, 4.0 / 3.0])
    noisy = [1.0 - 0.003 * i + (0.3 if i % 2 else -0.3) for i in range(200)]
    trend = history.ema(noisy, 0.95)
    assert trend[-1] is not None
    assert trend[60] is not None
    assert trend[60] - trend[-1] == pytest.approx(0.003 * 139, rel=0.1)


def test_patience_counts_evaluations_without_improvement() -> None:
    patience = history.Patience()
    for update, value in [(100, 1.0), (200, 0.95), (300, 0.9001), (400, None), (500, 0.96), (600, 0.85)]:
        patience = patience.after(value, update, min_delta=0.1, mode="min")
    # 0.95 and 0.9001 are less than 0.1 below 1.0; 0.85 is more
    assert patience == history.Patience(best=0.85, best_update=600, waited=0)
    waiting = patience.after(0.76, 700, min_delta=0.1, mode="min").after(None, 800, min_delta=0.1, mode="min")
    assert waiting == history.Patience(best=0.85, best_update=600, waited=2)
    assert history.Patience(**waiting.plain()) == waiting  # type: ignore[arg-type]


def test_patience_upwards() -> None:
    patience = (
        history.Patience().after(0.5, 1, min_delta=0.0, mode="max").after(0.6, 2, min_delta=0.0, mode="max")
    )
    assert patience.after(0.6, 3, min_delta=0.0, mode="max").waited == 1
    assert patience.best_update == 2
