"""What a row says of the loss: values beside the scale that gives them a meaning, from real runs.

covers HIST-04..09 CONTRACT-31, GOLD-25 GOLD-26 GOLD-27 GOLD-30, I4
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, freeze_job, run_log, state_of, take, write_job

from raykit.fleet.follow import Followed
from raykit.history import fits
from raykit.records import EvaluationRow, Row, Segment
from raykit.store import layout
from raykit.store.local import LocalStore

UPDATES = 10


def launches(nursery: Nursery, folder: Path, variant: str | None = None, **edits: str) -> Launches:
    plan = write_job(folder / "job", {"updates": str(UPDATES), **edits}, variant=variant)
    return Launches(nursery, freeze_job(folder / "store", plan), int(edits.get("workers", "1")))


def followed(run: Launches) -> Followed:
    found = Followed()
    found.follow(LocalStore(run.task.root), state_of(run.task).events)
    return found


def rows(run: Launches) -> list[Row]:
    """The rows of a run that ends well."""
    ends = run.run()
    assert [code for code, _ in ends] == [0] * run.world, ends
    found = followed(run).rows
    assert [row.update for row in found] == list(range(1, UPDATES + 1))
    return found


def refusal(run: Launches) -> tuple[int, str]:
    """How rank 0 ended, which every rank did in the same way."""
    ends = run.run()
    assert len(set(ends)) == 1, ends
    return ends[0]


# --- the ratio ----------------------------------------------------------------------------------------------

PREDICTS = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        error = {how} - y + 0 * model(x)
        size = sum(p.square().sum() for p in model.parameters())
        return {{
            "fit": LossTerm(value=error.square().mean(), target=y),
            "size": LossTerm(value=size, no_reference="what is trained here", elements=1),
        }}
"""
GANGS = {
    "one": {},
    "micro-batches": {"accumulate": "3"},
    "ranks": {"workers": "2"},
    "both": {"workers": "2", "accumulate": "2"},
    "bf16": {"dtype": '{ autocast = "bfloat16" }'},
}


@pytest.mark.parametrize("gang", GANGS)
@pytest.mark.parametrize(("how", "ratio"), [("0 * y", 1.0), ("y", 0.0)], ids=["zero", "perfect"])
def test_no_skill_is_exactly_one_and_perfect_exactly_zero(
    how: str, ratio: float, gang: str, nursery: Nursery, tmp_path: Path
) -> None:
    """Not almost: value and scale are the same sums over the same elements."""
    run = launches(nursery, tmp_path, PREDICTS.format(how=how), **GANGS[gang])
    for row in rows(run):
        assert row.ratio == row.terms["fit"].ratio == ratio
    for evaluation in followed(run).evaluations:
        assert evaluation.metrics["ratio"] == evaluation.metrics["ratio.fit"] == ratio


def test_a_loss_in_physical_units_says_nothing_without_its_scale(nursery: Nursery, tmp_path: Path) -> None:
    """0.0048 looks small. Predicting zero scores 0.0061."""
    gold = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        value = 0.0048 + 1e-12 * model(x).sum()
        return {"fit": LossTerm(value=value, target=torch.full((len(x), 2), 0.0061**0.5))}
"""
    for row in rows(launches(nursery, tmp_path, gold)):
        term = row.terms["fit"]
        assert term.value == pytest.approx(0.0048, rel=1e-6)
        assert term.target_ms == pytest.approx(0.0061, rel=1e-6)
        assert term.ratio == pytest.approx(0.0048 / 0.0061, rel=1e-6)
        assert f"{row.ratio:.3f}" == "0.787"
        assert fits(term, below=0.5) is False


def test_a_fused_loss_has_its_scale_by_reference_and_elements(nursery: Nursery, tmp_path: Path) -> None:
    """No prediction and no target tensor ever leave the kernel: ln C and the number of tokens say as much."""
    fused = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        classes = (y[:, 0] > 0).long()
        value = torch.nn.functional.cross_entropy(model(x), classes)
        return {"tokens": LossTerm(value=value, reference=float(np.log(2)), elements=len(x))}
"""
    run = launches(nursery, tmp_path, fused, accumulate="2")
    for row in rows(run):
        term = row.terms["tokens"]
        assert (term.reference, term.elements, term.target_ms) == (math.log(2), 12, None)
        assert term.value is not None
        assert term.ratio == row.ratio == term.value / math.log(2)
        assert term.no_reference is None
    assert all(e.metrics["ratio"] == e.metrics["ratio.tokens"] for e in followed(run).evaluations)


def test_a_term_without_a_scale_has_to_say_why(nursery: Nursery, tmp_path: Path) -> None:
    silent = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        return {"fit": LossTerm(value=(model(x) - y).square().mean(), elements=y.numel())}
"""
    run = launches(nursery, tmp_path, silent)
    assert refusal(run) == (2, "plan: a loss term says how its value is scaled in exactly one way\n")
    ended = state_of(run.task).ended
    assert ended is not None
    assert ended.detail == "plan: a loss term says how its value is scaled in exactly one way"


def test_why_there_is_no_scale_is_in_every_row(nursery: Nursery, tmp_path: Path) -> None:
    for row in rows(launches(nursery, tmp_path)):
        assert row.terms["decay"].no_reference == "a penalty has no target"
        assert row.terms["decay"].ratio is None
        assert row.ratio == row.terms["fit"].ratio


def test_a_target_of_zeros_is_flagged_and_does_not_lend_its_place(nursery: Nursery, tmp_path: Path) -> None:
    """The main term is the first that declares a scale, also in an update in which its scale is zero."""
    zeros = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        out = model(x)
        y = y * (self.seen % 2)
        self.seen += model.training
        return {
            "fit": LossTerm(value=(out - y).square().mean(), target=y),
            "other": LossTerm(value=out.square().mean(), reference=4.0, elements=out.numel()),
        }
"""
    found = rows(launches(nursery, tmp_path, zeros))
    for row in found:
        term = row.terms["fit"]
        assert row.terms["other"].ratio is not None
        if row.update % 2:
            assert (term.target_ms, term.ratio, row.ratio) == (0.0, None, None)
            assert term.no_reference == "what no skill scores is zero here"
        else:
            assert term.no_reference is None
            assert row.ratio == term.ratio is not None


# --- what was counted ---------------------------------------------------------------------------------------

COUNTED = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        value = (model(x) - y).square().mean()
        return {"examples": LossTerm(value=value, reference=1.0, elements=len(x))}
"""


def test_the_examples_that_were_counted_are_the_declared_batch(nursery: Nursery, tmp_path: Path) -> None:
    """Micro-batches of 8, 4 of them, on 2 ranks: 64 of 48 rows, so that every update runs into a new epoch."""
    run = launches(nursery, tmp_path, COUNTED, batch="64", workers="2", accumulate="4")
    for row in rows(run):
        assert row.terms["examples"].elements == 64
        assert row.samples == (64 * (row.update - 1), 64 * row.update)
        assert sum(row.sources.values()) == 64
        assert row.epoch == 64 * (row.update - 1) // 48


def test_the_default_count_is_the_elements_of_the_target(nursery: Nursery, tmp_path: Path) -> None:
    run = launches(nursery, tmp_path, workers="2", accumulate="3")
    assert {row.terms["fit"].elements for row in rows(run)} == {12 * 2}


UNEVEN = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        long = int(x[:, 2].sum() * 60) % 2
        value = (model(x) - y).square().mean()
        return {"tokens": LossTerm(value=value, reference=1.0, elements=100 + long)}
"""


def test_micro_batches_of_different_lengths_are_refused_by_name(nursery: Nursery, tmp_path: Path) -> None:
    """The mean of means is another objective than the mean; a padded count is the same everywhere."""
    code, out = refusal(launches(nursery, tmp_path, UNEVEN, accumulate="6"))
    assert code == 3
    assert out == "gate: term tokens has different numbers of elements in the micro-batches of one update\n"


def test_one_micro_batch_may_have_any_length(nursery: Nursery, tmp_path: Path) -> None:
    found = rows(launches(nursery, tmp_path, UNEVEN))
    assert {row.terms["tokens"].elements for row in found} == {100, 101}


def test_terms_that_change_their_names_are_refused(nursery: Nursery, tmp_path: Path) -> None:
    changing = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        return terms if self.seen < 5 else {"fit": terms["fit"]}
"""
    code, out = refusal(launches(nursery, tmp_path, changing))
    assert (code, out) == (3, "gate: the recipe's losses() returned other terms than before\n")


# --- what is not finite -------------------------------------------------------------------------------------

BAD_GRADIENT = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if self.seen == 7:
            root = (0 * model.{model}scale).abs().sum().sqrt()
            terms["fit"] = replace(terms["fit"], value=terms["fit"].value + root)
        return terms
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_loss_that_is_not_finite_stops_the_run_with_a_row_that_says_so(
    workers: str, nursery: Nursery, tmp_path: Path
) -> None:
    run = launches(nursery, tmp_path, params="{ width = 16, poison_at = 7 }", workers=workers)
    assert refusal(run) == (3, "gate: update 7: fit is not finite\n")
    row = stopped_at_7(run)
    assert (row.nonfinite, row.loss, row.ratio) == (("fit",), None, None)
    assert (row.terms["fit"].value, row.terms["fit"].contribution) == (None, None)
    assert row.terms["fit"].target_ms is not None
    assert row.terms["decay"].value is not None


@pytest.mark.parametrize(("workers", "model"), [("1", ""), ("2", "module.")])
def test_a_gradient_that_is_not_finite_stops_the_run_with_a_row_that_says_so(
    workers: str, model: str, nursery: Nursery, tmp_path: Path
) -> None:
    run = launches(nursery, tmp_path, BAD_GRADIENT.format(model=model), workers=workers)
    assert refusal(run) == (3, "gate: update 7: grad_norm is not finite\n")
    row = stopped_at_7(run)
    assert (row.nonfinite, row.grad_norm) == (("grad_norm",), None)
    assert row.loss is not None
    assert row.terms["fit"].value is not None


def stopped_at_7(run: Launches) -> Row:
    """The last row of a run that ended at update 7, where nothing was stepped, saved or tried again."""
    state = state_of(run.task)
    assert state.ended is not None
    assert (state.ended.reason, state.ended.update) == ("failed", 7)
    assert state.ended.detail is not None
    assert state.ended.detail.startswith("gate: update 7: ")
    assert len(state.attempts) == 1
    assert state.committed == 5
    *before, last = followed(run).rows
    assert all(row.nonfinite is None for row in before)
    assert last.update == 7
    return last


# --- no gap and no duplicate --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "says"),
    [(0, "history has update {last} twice"), (2, "history has a gap: updates {next} to {next} are missing")],
    ids=["duplicate", "gap"],
)
def test_a_history_with_a_duplicate_or_a_gap_stops_the_launch(
    after: int, says: str, nursery: Nursery, tmp_path: Path
) -> None:
    """After rows through n comes row n + 1, and nothing else."""
    run = launches(nursery, tmp_path)
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    last = state_of(run.task).recorded()
    first = last + after
    key = layout.segment("tiny", "main", 1, "train", first, first)
    wrong = Segment(
        series="train", attempt=1, first=first, last=first, key=key, sha256="0" * 64, size_bytes=1
    )
    task = take(run.task)
    run_log(LocalStore(task.root), task).append(lambda entries: [wrong], at=time.time())
    (end,) = [rank.wait() for rank in run.ranks(task)]
    assert end == (5, f"corrupt: {says.format(last=last, next=last + 1)}\n")


def test_evaluations_say_the_same_whoever_pools_them(nursery: Nursery, tmp_path: Path) -> None:
    """Two ranks score the same twelve rows as one does."""

    def last(name: str, **edits: str) -> EvaluationRow:
        run = launches(nursery, tmp_path / name, params="{ width = 16, lr = 0.0, dropout = 0.0 }", **edits)
        rows(run)
        return followed(run).evaluations[0]

    one, two = last("one"), last("two", workers="2")
    assert one.rows == two.rows == 12
    assert one.metrics.keys() == two.metrics.keys()
    for name, value in one.metrics.items():
        assert two.metrics[name] == pytest.approx(value, rel=0.05), name
