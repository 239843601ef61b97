"""Is that process still at work? Asked of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raykit.records import Place
from raykit.store import place
from raykit.store.place import alive, this_place

CHILD = """
import sys
from raykit.store.place import this_place
print(this_place().to_bytes().decode(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[subprocess.Popen[str], Place]]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        yield child, Place.from_bytes(child.stdout.readline().encode(), "the child's place")
        child.kill()


def becomes(where: Place, expected: bool) -> bool:
    """A signal takes effect a moment after it was sent."""
    deadline = time.monotonic() + 10.0
    while alive(where) is not expected and time.monotonic() < deadline:
        os.sched_yield()
    return alive(where) is expected


def test_this_process_is_alive() -> None:
    here = this_place()
    assert here.pid == os.getpid()
    assert here == this_place()
    assert alive(here) is True


def test_a_number_that_another_process_has_now_is_not_it() -> None:
    here = this_place()
    assert alive(here.model_copy(update={"started": here.started - 1})) is False


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"boot": "another/1"}])
def test_of_another_machine_nothing_is_known(change: dict[str, str]) -> None:
    assert alive(this_place().model_copy(update=change)) is None


def test_stopped_is_not_at_work_and_dead_is_dead(shared: tuple[subprocess.Popen[str], Place]) -> None:
    child, where = shared
    assert where.pid == child.pid
    assert alive(where) is True
    child.send_signal(signal.SIGSTOP)
    assert becomes(where, False)
    child.send_signal(signal.SIGCONT)
    assert becomes(where, True)
    child.kill()
    assert becomes(where, False), "a zombie that nobody has waited for"
    assert (Path("/proc") / str(child.pid)).exists()
    child.wait()
    assert alive(where) is False


def test_a_command_with_parentheses_and_spaces_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = "7 (a) Z (b c) S " + " ".join(str(n) for n in range(4, 53))
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(stat)
    monkeypatch.setattr(place, "PROC", tmp_path)
    monkeypatch.setattr(place, "_boot", lambda: "b")
    here = this_place().model_copy(update={"pid": 7, "started": 22})
    assert alive(here) is True
    assert alive(here.model_copy(update={"pid": 8})) is False


def test_without_proc_only_an_end_is_sure(
    shared: tuple[subprocess.Popen[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "PROC", tmp_path)
    here = this_place()
    assert here.started == 0
    assert alive(here) is None
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert alive(here.model_copy(update={"pid": child.pid})) is False
