"""Health that says what rows, checkpoints and evaluations say; and what is called best.

covers FAULT-B12 FAULT-B19 FAULT-B20 FAULT-C10
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from called import Raykit, calls
from makeqc import QcMaker, make_trained
from makerun import RunMaker
from nursery import Nursery
from plainrun import Launches, freeze_job, write_job
from test_read import begun, view

from raykit.cli.launched import _health as _health_line
from raykit.fleet.outcome import Outcome
from raykit.read.seen import _health
from raykit.records import QcFinding
from raykit.store.local import LocalStore
from raykit.testing import MemoryStore


def looked(maker: RunMaker) -> tuple[str, str | None]:
    maker.flush()
    figures = view(maker).figures
    return figures.health, figures.health_detail


# --- numbers that are none ------------------------------------------------------------------------------------


def test_updates_that_are_all_skipped_are_not_healthy() -> None:
    maker = begun()
    maker.rows(4)
    for update in range(5, 13):
        maker.update = update
        row = maker.row(update)
        maker.add(row.model_copy(update={"skipped": True, "scale": 2.0}))
    assert looked(maker) == ("nonfinite", "the steps of updates 5 to 12 were all skipped")
    maker.rows(1)
    assert looked(maker)[0] == "ok", "a scaler that has found its scale"


def test_a_checkpoint_with_what_is_no_number_is_named() -> None:
    maker = begun()
    for _ in range(2):
        maker.rows(5)
        maker.commit()
    rows, (good, newest) = [maker.row(1)], maker.log.state.commits[-2:]
    broken = newest.model_copy(update={"nonfinite": ("norm.running_var",)})
    says = f"norm.running_var in the checkpoint of update {newest.update}"
    assert _health(rows, (), [good, broken]) == ("nonfinite", says)
    marks = good.model_copy(update={"nonfinite": ("norm.running_var",)})
    assert _health(rows, (), [marks, broken]) == ("ok", None), "it was so from the start: a mark"
    assert _health(rows, (), [good, newest]) == ("ok", None)


def test_a_metric_that_selects_and_has_no_value_is_not_healthy() -> None:
    maker = begun(updates=40)
    maker.ratios = {5: float("nan")}
    maker.rows(5)
    maker.look()
    health, detail = looked(maker)
    assert health == "undefined" and detail is not None
    assert "ratio has no value at update 5" in detail and "nothing can be selected" in detail


ALWAYS_SKIPPED = """
class Variant(Tiny):
    def model(self, params):
        model = super().model(params)
        model.scale.register_hook(lambda gradient: gradient * float("nan"))
        return model
"""


def test_a_run_whose_every_step_is_skipped_says_so_at_its_end(nursery: Nursery, tmp_path: Path) -> None:
    edits = {"dtype": '{ autocast = "float16" }', "resume": '"state-exact"'}
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", edits, variant=ALWAYS_SKIPPED))
    ((code, said),) = Launches(nursery, task).run()
    assert code == 0, said
    import raykit

    root = raykit.open(str(tmp_path / "store"))
    figures = root.run("tiny").figures
    assert figures.health == "nonfinite" and "were all skipped" in (figures.health_detail or "")
    outcome = Outcome(experiment="tiny", run="main", reason="completed", update=20)
    told = _health_line(outcome, SimpleNamespace(store=root.store))  # type: ignore[arg-type]
    assert told.startswith("\n  health   nonfinite: the steps of updates 13 to 20")


POISONED = """
class Variant(Tiny):
    def optimizer(self, model, params):
        found = torch.optim.AdamW(model.parameters(), lr=params.lr)
        def poison(optimizer, args, kwargs):
            self.steps = getattr(self, "steps", 0) + model.training
            if max(s["step"] for s in optimizer.state.values()) == 20:
                with torch.no_grad():
                    model.scale.fill_(float("nan"))
        found.register_step_post_hook(poison)
        return found
"""


def test_a_run_whose_last_step_writes_nan_is_never_trained(nursery: Nursery, tmp_path: Path) -> None:
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", variant=POISONED))
    ((code, said),) = Launches(nursery, task).run()
    assert code == 3 and "nothing finite to keep: after update 20, scale is not finite" in said
    import raykit

    found = raykit.open(str(tmp_path / "store")).run("tiny")
    assert found.state != "completed" and found.health in ("nonfinite", "undefined")
    newest = found.committed
    assert newest is not None and newest.update == 20 and newest.nonfinite == ("scale",)


# --- what is best -------------------------------------------------------------------------------------------


class Stops(RunMaker):
    """Selects by `ratio`, and stops by another metric: the flag of a row is that of the rule."""

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        settings["run"] |= {
            "select": "min development.ratio",
            "stop": {"metric": "development.recon", "patience": 3},
        }
        return settings


def test_best_is_what_is_selected_and_not_what_the_stop_rule_watches() -> None:
    maker = Stops(MemoryStore())
    maker.ratios = {5: 0.5, 10: 0.7, 15: 0.4}
    maker.freeze()
    maker.launch()
    maker.begin()
    seen = []
    for _ in range(3):
        maker.rows(5)
        maker.look()
        maker.flush()
        development = view(maker).figures.development
        assert development is not None
        seen.append(development.best)
    assert seen == [True, False, True]


# --- update 0 -----------------------------------------------------------------------------------------------


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path))
    return calls(capsys)


def test_update_0_is_not_judged_and_never_called_passed(raykit: Raykit, tmp_path: Path) -> None:
    maker = make_trained(QcMaker(LocalStore(tmp_path)))
    maker.examine(0)
    maker.examine(10)
    found = raykit("qc", "status", "digits").out
    assert "5 required: 1 passed, 1 not judged, 3 missing" in found
    assert "not judged *" in found and "1 ok · 1 not judged · 3 open" in raykit("status").out
    assert raykit("qc", "status", "digits", "--json").json["unjudged"] == 1


def test_what_stands_beside_a_verdict_is_shown(raykit: Raykit, tmp_path: Path) -> None:
    maker = make_trained(QcMaker(LocalStore(tmp_path)))
    maker.examine(0)
    claim = maker.take(10)
    note = QcFinding(
        kind="worst-stratum",
        what="ratio",
        stratum="2",
        found="0.6 there, 0.3 over all",
        rule="fails if > 0.35",
    )
    receipt = maker.receipt_of(10).model_copy(update={"notes": (note,)})
    from raykit.records import Took

    took = Took(
        request=claim.request,
        n=claim.n,
        worker=claim.worker,
        receipt=receipt.digest,
        took_ms=1,
        peak_bytes=1,
        at=1.0,
    )
    assert maker.examinations.publish(receipt, {}, took) == "written"
    found = raykit("qc", "status", "digits").out
    assert "passed !" in found and "look !    update 10: ratio of 2 0.6 there, 0.3 over all" in found
