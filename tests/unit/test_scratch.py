"""Temporary folders that a killed process has left: told from those in use, named by the doctor, removed by a start."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from called import calls

from raykit.fleet.session import end_leftovers
from raykit.store.scratch import dead_scratch, make_scratch, remove_dead_scratch, scratch

MAKES = """
import sys
from raykit.store.scratch import make_scratch
made = make_scratch("resume")
(made / "recipe.py").write_bytes(b"x" * 1000)
print(made, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a short path: sessions have sockets in theirs
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def left(parent: Path) -> Path:
    """What a process left that SIGKILL ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        made = Path(process.stdout.readline().strip())
        assert dead_scratch(parent) == []  # it is in use
        process.kill()
        process.wait()
    return made


def test_only_folders_of_dead_processes_of_this_place_are_removed(parent: Path, left: Path) -> None:
    mine = make_scratch("job")
    elsewhere = parent / re.sub("-[0-9a-f]{8}-", "-00000000-", left.name, count=1)
    other = parent / "raykit-resume-abcdefgh"
    link = parent / f"{left.name}x"
    for folder in (elsewhere, other):
        folder.mkdir()
    link.symlink_to(mine)
    (found,) = dead_scratch(parent)
    assert found.path == left and found.size_bytes == 1000 and found.age_s >= 0
    assert remove_dead_scratch(parent) == 1 and dead_scratch(parent) == []
    assert not left.exists() and all(path.exists() for path in (mine, elsewhere, other, link))


def test_a_folder_goes_with_its_block(parent: Path) -> None:
    with pytest.raises(ValueError, match="out"), scratch("code") as folder:
        assert folder.is_dir() and folder.stat().st_mode & 0o077 == 0
        raise ValueError("out")
    assert list(parent.iterdir()) == []


def test_the_doctor_names_them_and_a_start_removes_them(
    parent: Path, left: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = calls(capsys)("doctor", "--root", str(parent / "store"), "--json")
    (line,) = [each for each in done.json["checks"] if each["check"] == "leftover folder"]
    assert line["state"] == "warn" and str(left) in line["found"] and "1.0 kB" in line["found"]
    end_leftovers(parent / "sessions")
    assert not left.exists()
