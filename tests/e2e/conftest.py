"""A run that nobody disturbs, to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, write_job

EDITS = {"updates": "80", "params": "{ width = 16, dropout = 0.3 }"}


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """The plan, and what its run is when nobody interrupts it."""

    plan: Path
    digest: str
    rows: list[bytes]


def run_undisturbed(nursery: Nursery, folder: Path, edits: dict[str, str]) -> Undisturbed:
    plan = write_job(folder / "job", edits)
    run = Launches(nursery, freeze_job(folder / "store", plan), int(edits.get("workers", "1")))
    ends = run.run()
    assert {code for code, _ in ends} == {0}, ends
    return Undisturbed(plan, final_digest(run.task), rows_bits(run.task))


@pytest.fixture(scope="session")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return run_undisturbed(nursery, tmp_path_factory.mktemp("undisturbed"), EDITS)


@pytest.fixture(scope="session")
def two_ranks_undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Its plan asks for a replay at the end."""
    return run_undisturbed(
        nursery, tmp_path_factory.mktemp("two-ranks"), {**EDITS, "workers": "2", "replay": '"end"'}
    )
