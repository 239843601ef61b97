"""Scores that do not come of training, metrics that not every row has, terms that relate rows: said on the bench.

covers FAULT-B04 FAULT-B05 FAULT-B06 FAULT-B07 FAULT-B09 FAULT-B10 FAULT-B13 FAULT-B15 FAULT-B16
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from plainrun import freeze_job
from test_qc_plan import job as qc_job
from test_qc_unit import PROBE, Job, _as_it_was, findings  # noqa: F401 - the fixture is used by every test

from raykit.errors import CorruptError, GateError
from raykit.records import Receipt
from raykit.store.local import LocalStore
from raykit.store.plans import newest_stored_lock
from raykit.work import qc_unit
from raykit.work.related import batches, micro_batch

PLAIN: dict[str, Any] = {"fields": {}, "fail": {"ratio": "> 2"}, "metrics": ()}
BARE = "evaluate = embed = classify = text = panels = losses_given = fields = None\n"


def job(folder: Path, body: str, **known: Any) -> Job:
    """A job whose recipe offers nothing but `losses`, and what `body` adds."""
    return Job(folder, code=f"{PROBE}\n\nclass Variant(Probe):\n    {BARE}{body}", known={**PLAIN, **known})


def noted(receipt: Receipt) -> list[tuple[str, str, str | None]]:
    return [(note.kind, note.what, note.stratum) for note in receipt.notes or ()]


PLAIN_LOSS = """
    def losses(self, model, batch):
        drawn = model.decode(model.code(batch["x"]))
        return {"recon": LossTerm(value=(drawn - batch["x"]).square().mean(), target=batch["x"])}
"""


# --- nothing was learned ------------------------------------------------------------------------------------


def test_weights_that_are_still_those_of_update_0_are_a_finding(tmp_path: Path) -> None:
    made = job(tmp_path, PLAIN_LOSS)
    bench = made.bench()
    first = bench(*made.commit(0), None).receipt
    assert first.verdict == "passed" and first.weights is not None and first.scores is not None
    made.live.recipe.updates = 10  # what else a checkpoint holds is another one
    again = bench(*made.commit(10), first).receipt
    assert again.verdict == "failed" and findings(again) == [("untrained", "weights", None)]
    made.train(20)
    later = bench(*made.commit(20), first).receipt
    assert later.findings == () and later.scores != first.scores


def test_losses_that_are_equal_to_the_bit_for_other_weights_are_a_finding(tmp_path: Path) -> None:
    cached = """
    def losses(self, model, batch):
        drawn = torch.zeros_like(batch["x"])
        return {"recon": LossTerm(value=(drawn - 0.5 * batch["x"]).square().mean(), target=batch["x"])}
"""
    made = job(tmp_path, cached)
    bench = made.bench()
    first = bench(*made.commit(0), None).receipt
    made.train(5)
    found = bench(*made.commit(10), first).receipt
    assert found.verdict == "failed" and findings(found) == [("same-scores", "losses", None)]


def test_perfect_scores_at_update_0_are_a_finding(tmp_path: Path) -> None:
    sees = """
    def losses(self, model, batch):
        drawn = batch["x"] + 0 * model.decode(model.code(batch["x"]))
        return {"recon": LossTerm(value=(drawn - batch["x"]).square().mean(), target=batch["x"])}

    def classify(self, model, batch):
        hot = torch.nn.functional.one_hot(batch["kind"], KINDS).float()
        return Classes(probabilities=hot, label=batch["kind"])
"""
    made = job(tmp_path, sees)
    found = made.bench()(*made.commit(0), None).receipt
    assert findings(found) == [("seen-answer", "ratio", None), ("seen-answer", "accuracy", None)]
    trained = job(tmp_path / "base", sees, from_base=True)
    assert trained.bench()(*trained.commit(0), None).receipt.findings == (), "it has learned already"


def test_bits_far_below_a_unigram_at_update_0_are_noted(tmp_path: Path) -> None:
    averaged = """
    def text(self, model, batch):
        sizes = torch.tensor([float(len(text)) for text in batch["text"]])
        return Text(nats=0.01 * sizes, content=[text.encode() for text in batch["text"]])
"""
    made = job(tmp_path, PLAIN_LOSS + averaged)
    found = made.bench()(*made.commit(0), None).receipt
    assert found.verdict == "passed" and noted(found) == [("below-chance", "bits_per_byte", None)]


# --- what not every row has ---------------------------------------------------------------------------------


def test_a_metric_counts_the_units_that_gave_a_number(tmp_path: Path) -> None:
    some = """
    def evaluate(self, model, batch):
        kind = batch["kind"]
        huge = torch.full((1,), 1e308, dtype=torch.float64)
        found = {"of_first": torch.ones(1)[kind == 0], "of_none": torch.ones(0), "huge": huge}
        return {**found, "only_second": torch.ones(1)} if int(kind) == 1 else found
"""
    made = job(tmp_path, PLAIN_LOSS + some)
    found = made.bench()(*made.commit(0), None).receipt
    first, second = (found.strata[name].scored for name in ("a", "b"))
    assert found.metrics["of_first"].count == first and found.metrics["of_first"].value == 1.0
    assert found.metrics["only_second"].count == second and found.metrics["only_second"].value == 1.0
    assert found.metrics["of_none"].value is None and found.metrics["of_none"].count == 0
    assert found.metrics["huge"].value is None and found.metrics["huge"].count is None
    named = {what for kind, what, _ in noted(found) if kind == "partial"}
    assert named == {"of_first", "of_none", "only_second"}


def test_a_unit_with_nothing_to_score_is_counted_and_named(tmp_path: Path) -> None:
    some = """
    def losses(self, model, batch):
        drawn = model.decode(model.code(batch["x"]))
        none = batch["text"][0] == "abab"
        value = (drawn - batch["x"]).square().mean()
        return {"recon": LossTerm(value=value / 0 if none else value, reference=1.0, elements=0 if none else 6)}
"""
    made = job(tmp_path, some)
    found = made.bench()(*made.commit(0), None).receipt
    empty = found.units.empty
    assert found.verdict == "passed" and empty is not None and 0 < empty < found.units.requested
    assert found.units.failed == 0 and found.failed_units == ()
    assert found.metrics["ratio"].value is not None and found.metrics["failed"].value == 0.0
    (note,) = found.notes or ()
    assert note.kind == "empty" and "p00" in note.found


# --- one stratum of several ---------------------------------------------------------------------------------


def test_a_broken_stratum_under_a_pooled_threshold_stands_beside_the_verdict(tmp_path: Path) -> None:
    hurt = """
    def losses(self, model, batch):
        bad = torch.where(batch["kind"] == 2, 1.0, 0.1)[:, None]
        drawn = (1 - bad**0.5) * batch["x"] + 0 * model.code(batch["x"]).sum()
        return {"recon": LossTerm(value=(drawn - batch["x"]).square().mean(), target=batch["x"])}
"""
    made = job(tmp_path, hurt, fail={"ratio": "> 0.9"}, from_base=True)
    found = made.bench()(*made.commit(0), None).receipt
    assert found.verdict == "passed" and noted(found) == [("worst-stratum", "ratio", "c")]
    strict = job(tmp_path / "worst", hurt, fail={"worst.ratio": "> 0.9"}, from_base=True)
    assert findings(strict.bench()(*strict.commit(0), None).receipt) == [("threshold", "worst.ratio", None)]


# --- terms that relate rows ---------------------------------------------------------------------------------

CONTRASTIVE = """
    def losses(self, model, batch):
        code = torch.nn.functional.normalize(model.code(batch["x"]), dim=1)
        logits = code @ code.T / 0.5
        value = torch.nn.functional.cross_entropy(logits, torch.arange(len(code)))
        return {{"pairs": LossTerm(value=value, reference=1.386, elements=len(code){says})}}
"""


def test_a_term_that_relates_rows_without_saying_so_is_refused(tmp_path: Path) -> None:
    made = job(tmp_path, CONTRASTIVE.format(says=""))
    with pytest.raises(GateError, match="rows at once") as refused:
        made.bench()(*made.commit(0), None)
    assert refused.value.field == "recipe.losses.pairs" and "relates_rows=True" in (
        refused.value.remedy or ""
    )


def test_a_term_that_says_so_is_examined_in_batches_of_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qc_unit, "micro_batch", lambda *asked: 4)
    made = job(tmp_path, CONTRASTIVE.format(says=", relates_rows=True"))
    asked = made.commit(0)
    first = made.bench()(*asked, None).receipt
    assert first == made.bench("again")(*asked, None).receipt, "the same batches whenever it is asked"
    ratio = first.metrics["ratio"].value
    assert ratio is not None and 0.3 < ratio < 1.2, "0 is what a batch of one scores"
    data, model = made.data, made.live.model
    units = [unit.id for unit in made.roster.units]
    x = torch.stack([data.x[data.ids.index(id)] for id in units])
    code = torch.nn.functional.normalize(model.code(x), dim=1).detach()
    values = []
    for at in range(0, len(units), 4):
        rows = list(range(at, min(at + 4, len(units))))
        rows += list(range(4 - len(rows)))
        logits = code[rows] @ code[rows].T / 0.5
        own = min(4, len(units) - at)
        values += [float(torch.nn.functional.cross_entropy(logits, torch.arange(4)))] * own
    assert ratio == pytest.approx(sum(values) / len(values) / 1.386, rel=0.02)


def test_batches_are_as_large_as_the_micro_batches_of_the_plan(tmp_path: Path) -> None:
    root = tmp_path / "store"
    freeze_job(root, qc_job(tmp_path))
    store = LocalStore(root)
    lock = newest_stored_lock(store, "tiny")
    assert lock is not None and lock.suite is not None
    assert micro_batch(store, "tiny", lock.suite, "main") == lock.micro_batch == 12
    with pytest.raises(CorruptError):
        micro_batch(store, "tiny", "0" * 64, "main")


def test_the_last_batch_is_filled_up_from_the_start() -> None:
    found = [(list(own), list(whole)) for own, whole in batches("abcdefg", 3)]
    assert found[:2] == [(["a", "b", "c"], ["a", "b", "c"]), (["d", "e", "f"], ["d", "e", "f"])]
    assert found[2] == (["g"], ["g", "a", "b"])
    assert [list(whole) for _, whole in batches("ab", 3)] == [["a", "b"]]


RIGHT = {
    "a mean": 'error.mean(), target=batch["x"]',
    "a mean over padding": "error.sum() / (8 * len(error)), reference=1.0, elements=8 * len(error)",
    "a penalty": 'model.code.weight.square().mean(), no_reference="none", elements=1',
    "a draw": "error.mean() * (1 + torch.rand(())), reference=1.0, elements=len(error)",
}


@pytest.mark.parametrize("how", RIGHT)
def test_a_mean_over_elements_is_never_accused(how: str, tmp_path: Path) -> None:
    body = f"""
    def losses(self, model, batch):
        error = (model.decode(model.code(batch["x"])) - batch["x"]).square()
        return {{"fit": LossTerm(value={RIGHT[how]})}}
"""
    made = job(tmp_path, body, fail={"loss": "> 100"})
    assert made.bench()(*made.commit(0), None).receipt.findings == ()
