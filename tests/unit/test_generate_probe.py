"""Who asks the producer before a contract is frozen: what is no fault of the recipe's is asked again, and then refused.

covers F18 GEN-13
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from makegen import toy_set
from qcray import FakeDoor
from test_generate_sets import draft_like

from raykit.errors import GateError, Unknown
from raykit.fleet.generate import probe as generate_probe
from raykit.fleet.generate.probe import Asking, Prober, refusal_of
from raykit.fleet.pool.lease import Price
from raykit.store import open_store


@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), TimeoutError("late"), OSError(errno.EIO, "bad disk")]
)
def test_what_does_not_answer_is_no_fault_of_the_recipe(error: Exception) -> None:
    found = refusal_of(error)
    assert isinstance(found, Unknown)
    assert found.exit_code == 6
    assert type(error).__name__ in str(found)


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), FileNotFoundError(2, "weights")])
def test_what_the_recipe_raises_refuses_it(error: Exception) -> None:
    assert isinstance(refusal_of(error), GateError)


class Scripted(Prober):
    """Its producer answers as the test says."""

    answers: list[Any]

    def _ask(self, n: int, stop: Any) -> Any:
        return self.answers.pop(0)


@pytest.fixture
def prober(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(generate_probe, "WAITS_S", (0.01, 0.01, None))
    monkeypatch.setattr(generate_probe, "POLL_S", 0.005)
    maker = toy_set(open_store(str(tmp_path / "store")))
    asking = Asking(
        root=str(tmp_path / "store"),
        draft=draft_like(maker.generation_contract),
        teacher="",
        folder=str(tmp_path / "probe"),
        options={},
        data=None,
        source=None,
    )
    door = FakeDoor(role="generate")
    return Scripted(
        asking, launch="f00d", door=door, price=Price(), gpus=0.0, wants={}, deadline_s=None, say=print
    )


def test_a_producer_that_is_away_for_a_while_is_asked_again(prober: Scripted) -> None:
    away = refusal_of(ConnectionError("reset"))
    prober.answers = [away, away, "rows"]
    assert prober.ask(lambda: None) == "rows"
    prober.answers = [away, away, away, "rows"]
    with pytest.raises(Unknown, match="ConnectionError: reset"):
        prober.ask(lambda: None)
    assert prober.answers == ["rows"], "three times in all"
    prober.answers = [away, "rows"]
    assert prober.ask(lambda: "ended by SIGTERM") is None
    assert prober.answers == ["rows"]
