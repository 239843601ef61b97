"""The plans that `make demo` writes where this machine is priced: each is let through its review, without Ray.

covers BUD-01, REVIEW-13, REVIEW-16
"""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Raykit, calls

from jobs.demo import priced


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str]) -> Raykit:
    return calls(capsys)


@pytest.mark.parametrize("ceiling", [None, 0.40, 0.5, 4.0])
def test_a_priced_demo_passes_its_review(ceiling: float | None, raykit: Raykit, tmp_path: Path) -> None:
    plan = priced(tmp_path / "paid", 36.0, ceiling)
    called = raykit("plan", "check", str(plan), "--root", str(tmp_path / "paid"))
    assert called.code == 0, called.err
    said = " ".join(called.out.split())
    assert "review 20 of 20 items hold" in said
    assert "sets not billed (priced by [pools.generate])" in said
    assert "checks not billed (priced by [pools.qc])" in said
