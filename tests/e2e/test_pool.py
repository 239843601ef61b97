"""A pool on a real local Ray that knows nothing of its units: names, money, how many, what they have come to.

covers FLEET-06 FLEET-07, I3 I9
"""

from __future__ import annotations

from pathlib import Path

import poolray
import pytest
from poolray import CONTRACT, ROWS, Count, FolderDesk
from qcray import FakeDoor

from raykit.fleet.pool.pool import Pool
from raykit.fleet.pool.settings import Hiring, Kind, PoolSettings
from raykit.fleet.session import start_local

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

UNITS = 12


def test_a_backlog_of_anything_is_worked_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit once, although a worker dies; and what the workers have come to is known after they are gone."""
    monkeypatch.setenv("PYTHONPATH", str(Path(poolray.__file__).parent))
    units, lines, door = tmp_path / "units", list[str](), FakeDoor(role="generate")
    workers = list[int]()
    units.mkdir()
    desk = FolderDesk(Count(folder=str(units), units=UNITS, deadly=5))
    with start_local(cpus=4, resources={"generate": 2}):
        pool = Pool(
            Hiring(
                kind=Kind(role="generate", word="generation"),
                root=str(tmp_path / "store"),
                experiment="digits",
                run="main",
                launch="f00d",
                settings=PoolSettings(slots=2),
                door=door,
                folder=tmp_path,
                say=lines.append,
            ),
            lambda store: desk,
        )
        drained = pool.drain(60.0, tell=lambda glance: workers.append(glance.workers))
        ended = pool.close()
    assert (drained.open, drained.counts, drained.waits) == (0, {"done": UNITS}, None)
    # the row count of a process that is killed is that of its last answer
    assert ROWS * (UNITS - 6) <= ended.tally["rows"] <= ROWS * UNITS
    assert desk.gained == ended.tally
    assert 1 <= max(workers) <= 2
    assert desk.started[0] == (615.0, "f00d-generate-1")
    assert [lease for _, lease in desk.started] == door.reserved
    assert sorted(door.settled) == sorted(door.reserved)
    assert door.contracts == {CONTRACT}
    (dead,) = desk.buried
    assert dead in ("generate-f00d-1", "generate-f00d-2")
    assert desk.buried[dead].kind == "lost"
    assert any(line.startswith("generation of unit 5, attempt 1: ") for line in lines)
    assert any(line.startswith(f"generation worker {dead} is ended: ") for line in lines)
    assert lines.count("counting: the first one is done") == 1
