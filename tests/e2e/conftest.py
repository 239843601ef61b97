"""A run that nobody disturbs, to compare with."""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("undisturbed")
    plan = write_job(folder / "job", EDITS)
    run = Launches(nursery, freeze_job(folder / "store", plan))
    assert [code for code, _ in run.run()] == [0]
    yield Undisturbed(plan, final_digest(run.task), rows_bits(run.task))
