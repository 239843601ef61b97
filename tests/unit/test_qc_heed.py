"""What a failed checkpoint means for the run: continue, pause, stop, and what answers it.

covers QC-09 QC-24
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from makeqc import QcMaker, failed, make_trained

from raykit.errors import GateError
from raykit.fleet.qc.heed import heed, require_answered
from raykit.read.qc import QcRead, read_qc
from raykit.store.local import LocalStore
from raykit.store.people import pause, read_acts, repair, resume


def failing(folder: Path, on_failure: str) -> QcMaker:
    """Update 0 passed; update 10 has failed."""
    maker = QcMaker(LocalStore(folder / "store"))
    maker.on_failure = on_failure  # type: ignore[assignment]
    make_trained(maker)
    maker.examine(0)
    maker.examine(10, findings=[failed()])
    return maker


def read(maker: QcMaker) -> QcRead:
    found = read_qc(maker.store, "digits", now=maker.at)
    assert found is not None
    return found


def test_continue_leaves_the_run_alone(tmp_path: Path) -> None:
    maker = failing(tmp_path, "continue")
    assert heed(maker.store, read(maker), launch="a") is None
    assert not read_acts(maker.store, "digits").pauses
    require_answered(maker.store, "digits", ended=False)


def test_pause_pauses_it_once_and_is_answered_by_a_person(tmp_path: Path) -> None:
    maker = failing(tmp_path, "pause")
    for _ in range(2):
        assert heed(maker.store, read(maker), launch="a") is None
    (held,) = read_acts(maker.store, "digits").pauses.values()
    assert held.pause.cause == "qc" and "update 10 failed its QC: ratio 0.41" in held.pause.reason
    with pytest.raises(GateError, match="nobody has said what is done about it"):
        require_answered(maker.store, "digits", ended=False)
    resume(maker.store, "experiment:digits", cleared="looked at: early yet", person="mira", at=maker.at + 1)
    assert heed(maker.store, read(maker), launch="b") is None
    assert not read_acts(maker.store, "digits").pauses, "what was answered pauses nobody again"
    maker.at += 10
    maker.examine(20, findings=[failed()])
    heed(maker.store, read(maker), launch="b")
    assert "update 20" in read_acts(maker.store, "digits").pauses["experiment:digits"].pause.reason


def test_the_end_of_another_pause_answers_nothing(tmp_path: Path) -> None:
    maker = failing(tmp_path, "pause")
    pause(maker.store, "experiment:digits", reason="lunch", person="mira", at=maker.at + 1)
    resume(maker.store, "experiment:digits", cleared="lunch is over", person="mira", at=maker.at + 2)
    with pytest.raises(GateError):
        require_answered(maker.store, "digits", ended=False)


def test_stop_ends_it_until_a_review_or_a_repair(tmp_path: Path) -> None:
    maker = failing(tmp_path, "stop")
    why = heed(maker.store, read(maker), launch="a")
    assert why is not None and why.startswith("gate: update 10 failed its QC")
    with pytest.raises(GateError) as refused:
        require_answered(maker.store, "digits", ended=True)
    assert "--repair" in str(refused.value.remedy)
    repair(maker.store, "digits", what="half the rate", attempt=1, person="mira", at=time.time() + 1e9)
    assert heed(maker.store, read(maker), launch="b") is None


@pytest.mark.parametrize("on_failure", ["pause", "stop"])
def test_a_review_as_failed_is_an_answer(tmp_path: Path, on_failure: str) -> None:
    maker = failing(tmp_path, on_failure)
    maker.review(10, verdict="failed", note="too early to tell")
    assert heed(maker.store, read(maker), launch="a") is None
    require_answered(maker.store, "digits", ended=False)
    assert not read_acts(maker.store, "digits").pauses
