"""Benchmarks run, and say when a bar is missed. What they measure is in benchmarks/README.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_a_bar_is_met_by_the_median_and_missed_by_more(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.figures import Figure, main

    met = Figure(what="met", unit="x", values=[1.0, 1.5, 9.0], at_most=1.5)
    missed = Figure(what="missed", unit="x", values=[1.0, 1.6, 9.0], at_most=1.5)
    assert main(lambda: [met]) == 0
    large = Figure(what="large", unit="MB", values=[90.4])
    assert main(lambda: [met, missed, large]) == 1
    printed = capsys.readouterr().out
    assert "| met | 1.500 x | 1.000 x to 9.000 x | at most 1.5: met |" in printed
    assert "| missed | 1.600 x | 1.000 x to 9.000 x | at most 1.5: missed |" in printed


def test_a_raykit_run_ticks_once_an_update(tmp_path: Path) -> None:
    """What `step_time` measures really trains, saves and keeps its history: the contender asserts it."""
    from benchmarks.job import Job

    params = {"width": 16, "layers": 1, "heads": 2, "context": 16}
    job = Job(params=params, batch=8, updates=6, checkpoint_every=3)
    spec, ticks = tmp_path / "job.json", tmp_path / "ticks.json"
    spec.write_text(json.dumps(asdict(job)))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.contender", "raykit", str(spec), str(ticks)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    began = json.loads(ticks.read_text())
    assert len(began) == 6 and began == sorted(began)


def test_what_history_costs_is_measured_with_rows_that_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import history_cost

    monkeypatch.setattr(history_cost, "ROUNDS", 1)
    monkeypatch.setattr(history_cost, "BLOCKS", 1)
    figures = history_cost.measure()
    assert [figure.at_most is not None for figure in figures] == [True, False] * 2


def test_what_examining_costs_is_measured_with_receipts_that_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from benchmarks import qc

    monkeypatch.chdir(ROOT)
    for name, value in {"ROUNDS": 1, "REQUESTS": 8, "UNITS": 2, "UNIT_S": 0.05}.items():
        monkeypatch.setattr(qc, name, value)
    no_op, unit = qc.measure()
    assert (no_op.at_most, unit.at_most) == (60.0, 1.02)
    assert 0.0 < no_op.median < 60.0
    assert unit.median > 1.0


def test_every_command_of_the_readme_is_a_benchmark() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text()
    named = set(re.findall(r"python -m benchmarks\.(\w+)", page))
    others = {
        "step_time",
        "save_time",
        "history_cost",
        "help_time",
        "ledger",
        "directive",
        "qc",
        "search",
        "generate",
    }
    assert named - {"qc_beside"} == {"run", "against", *others}
    for name in named:
        assert f"python -m benchmarks.{name}" in (ROOT / "benchmarks" / f"{name}.py").read_text()


def test_two_checkouts_take_turns_and_the_first_round_is_not_counted() -> None:
    from benchmarks.against import in_turns

    asked: list[str] = []

    def run(checkout: Path) -> int:
        asked.append(checkout.name)
        return len(asked)

    found = in_turns(Path("before"), Path("after"), 2, run)
    assert asked == ["after", "before", "before", "after", "after", "before"]
    assert found == [(3, 4), (6, 5)]


def test_a_start_ends_with_the_commit_of_update_0(tmp_path: Path) -> None:
    from makerun import RunMaker

    from benchmarks.against import first_commit_at
    from raykit.store.local import LocalStore

    maker = RunMaker(LocalStore(tmp_path))
    maker.freeze()
    maker.launch()
    with pytest.raises(RuntimeError, match="no commit in the log"):
        first_commit_at(tmp_path)
    maker.begin()
    committed_at = maker.at
    maker.rows(5)
    maker.commit()
    assert first_commit_at(tmp_path) == committed_at < maker.at


def test_a_folder_that_is_no_checkout_is_not_measured(tmp_path: Path) -> None:
    from benchmarks.against import require_its_own_code

    require_its_own_code(ROOT)
    with pytest.raises(SystemExit, match="is no checkout of raykit"):
        require_its_own_code(tmp_path)
