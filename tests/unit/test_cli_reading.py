"""The commands that read a store, as people and programs call them."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from makerun import RunMaker, make_run

from raykit.cli import historylook, reading
from raykit.cli.main import main
from raykit.records import Row
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.place import this_place

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a completed run, a paused, a failed and a stopped one, and one that goes on here."""
    path = tmp_path_factory.mktemp("store")
    store = LocalStore(path)
    make_run(store)
    for name in ("paused", "failed", "stopped", "going", "waiting"):
        maker = RunMaker(store, experiment=name, at=time.time() - 3600.0)
        maker.freeze()
        if name == "waiting":
            continue
        maker.place = this_place() if name == "going" else maker.place
        maker.launch()
        maker.begin()
        maker.rows(12, nonfinite=name == "failed")
        maker.look(collapsed=name == "stopped")
        maker.commit()
        maker.rows(2)
        maker.flush()
        if name == "paused":
            maker.end("paused", detail="SIGTERM")
        if name == "failed":
            maker.end("failed", detail="gate: the loss is not finite")
        if name in ("paused", "failed"):
            maker.release("paused" if name == "paused" else "failed")
    return path


@pytest.fixture
def raykit(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("RAYKIT_ROOT", str(root))  # so that commands are printed without it

    def call(*arguments: str, at: Path = root) -> tuple[int, str]:
        code = main([*arguments, "--root", str(at)])
        captured = capsys.readouterr()
        return code, captured.out if code in (0, 5) else captured.err

    return call


# --- status -------------------------------------------------------------------------------------------------


def test_status(raykit: Run) -> None:
    # covers HIST-22
    code, text = raykit("status")
    assert code == 0
    lines = {line.split()[0]: re.split(r"\s{2,}", line) for line in text.splitlines()[:7]}
    assert lines["NAME"] == [
        "NAME",
        "STATE",
        "UPDATE",
        "RATE",
        "ETA",
        "RATIO",
        "DEV",
        "QC",
        "SPENT",
        "HEALTH",
    ]
    figures = ["0.5 s/u", "-", "0.308", "ratio 0.308 best", "-", "-"]
    assert lines["digits"] == ["digits", "completed", "40/40", *figures, "ok"]
    assert [lines[name][1] for name in ("paused", "failed", "stopped", "going")] == [
        "paused",
        "failed",
        "stopped",
        "running",
    ]
    assert lines["waiting"][1:3] == ["not started", "0/40"]
    assert lines["going"][4] == "13 s", "26 updates at half a second"
    assert lines["stopped"][-1] == "collapsed"
    assert "completed" not in lines["digits"][-1]


def test_status_says_who_is_waited_for_and_what_to_type(raykit: Run) -> None:
    text = raykit("status")[1]
    following = dict(zip(text.splitlines(), text.splitlines()[1:], strict=False))
    wants = {
        line.split()[0].rstrip(":"): (line, following[line]) for line in following if line.startswith("  ")
    }
    assert re.search(r"paused 59m\d\d ago at update 14: SIGTERM", wants["paused"][0])
    assert wants["paused"][1] == "  -> raykit resume paused"
    assert "gate: the loss is not finite" in text
    assert "  -> raykit logs failed      then      raykit resume failed" in text
    assert "goes on from update 12\n  -> raykit resume stopped\n" in text
    assert wants["stopped"] == (
        "  stopped: collapsed, latent at update 12",
        "  -> raykit history stopped --series monitor",
    )
    assert f"going is held by process {os.getpid()} on " in text
    assert "  -> raykit logs going" in text, "it has said nothing for an hour"
    assert text.endswith("No Ray needed for this view.\n")
    assert "6 runs, 1 live." in text


def test_status_as_json(raykit: Run, root: Path) -> None:
    plain = json.loads(raykit("status", "--json")[1])
    assert plain["root"] == str(root)
    runs = {run["experiment"]: run for run in plain["runs"]}
    assert (runs["digits"]["state"], runs["digits"]["update"]) == ("completed", 40)
    assert runs["going"]["holder"]["pid"] == os.getpid()
    assert runs["failed"]["health"] == "nonfinite"


def test_status_of_nothing(raykit: Run, tmp_path: Path) -> None:
    code, text = raykit("status", at=tmp_path / "none")
    assert code == 0
    assert text.startswith(f"no runs in {tmp_path}/none\n  -> raykit plan new")
    assert json.loads(raykit("status", "--json", at=tmp_path / "none")[1])["runs"] == []
    assert not (tmp_path / "none").exists()


def test_a_run_that_cannot_be_read_is_told_of_and_ends_with_5(raykit: Run, tmp_path: Path) -> None:
    make_run(LocalStore(tmp_path))
    make_run(LocalStore(tmp_path), experiment="broken")
    entry = tmp_path / layout.log_entry(layout.run_log("broken", "main"), 9)
    entry.write_bytes(entry.read_bytes()[:-1])
    code, text = raykit("status", at=tmp_path)
    assert code == 0, "the snapshot of a log that has come to rest is as good as the log"
    (tmp_path / layout.log_snapshot(layout.run_log("broken", "main"))).unlink()
    code, text = raykit("status", at=tmp_path)
    assert code == 5
    assert "digits  completed" in text
    assert f"  broken cannot be read: {layout.run_log('broken', 'main')}" in text
    assert "  -> raykit check --read-data" in text


# --- ls, show -----------------------------------------------------------------------------------------------


def test_ls(raykit: Run) -> None:
    code, text = raykit("ls")
    assert code == 0
    assert re.search(r"^digits +main +\d+ +[\d.]+ kB$", text, re.MULTILINE)
    entries = json.loads(raykit("ls", "--json")[1])
    assert {"experiment": "waiting", "run": "main"}.items() <= entries[-1].items()
    keys = [item["key"] for item in json.loads(raykit("ls", "digits/main", "--json")[1])]
    assert layout.run_record("digits", "main") in keys
    assert all(key.startswith("experiments/digits/runs/main/") for key in keys)
    assert layout.run_record("digits", "main") in raykit("ls", "digits")[1]
    code, text = raykit("ls", "nothing")
    assert code == 2
    assert "there is no nothing" in text
    assert raykit("ls", "../etc")[0] == 2


def test_show(raykit: Run) -> None:
    code, text = raykit("show", "digits")
    assert code == 0
    assert "  ratio        0.308 (no skill 1.000)\n" in text
    assert "  cost         7 updates were trained and superseded\n" in text
    assert re.search(r"^1 +\S+ \S+ +n7 +the start +exact \(declared\) +killed at 27$", text, re.MULTILINE)
    assert re.search(r"^2 +\S+ \S+ +n7 +update 20 +exact \(declared\) +completed at 40$", text, re.MULTILINE)
    assert re.search(r"^first +passed +1 cpu", text, re.MULTILINE)
    assert re.search(r"^ +40 +2 +9.6 kB +exact \(declared\) +final .* selected$", text, re.MULTILINE)
    assert "\n  -> raykit resume paused\n\nledger of paused" in raykit("show", "paused")[1]
    assert json.loads(raykit("show", "digits/main", "--json")[1])["superseded"] == 7
    code, text = raykit("show", "digit")
    assert code == 2
    assert "did you mean digits?" in text


# --- logs ---------------------------------------------------------------------------------------------------


def test_logs(raykit: Run) -> None:
    assert raykit("logs", "digits") == (0, "attempt 2 starts\n")
    assert raykit("logs", "digits", "--attempt", "1", "--rank", "0") == (0, "attempt 1 starts\n")
    assert json.loads(raykit("logs", "digits", "--json")[1])["text"] == "attempt 2 starts\n"
    code, text = raykit("logs", "digits", "--rank", "3")
    assert code == 2
    assert "no log of attempt 2, rank 3" in text
    assert "attempt 1 rank 0, attempt 2 rank 0" in text
    code, text = raykit("logs", "waiting")
    assert code == 2
    assert "has no logs yet" in text and "raykit watch waiting/" in text
    assert raykit("logs", "digits", "-f", "--json")[0] == 2


def test_a_log_is_followed_to_the_end_of_its_run(
    raykit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FOLLOW_S", 0.01)
    store = LocalStore(tmp_path)
    maker = RunMaker(store, place=this_place(), at=time.time())
    maker.freeze()
    maker.launch()
    maker.begin()
    key = layout.worker_log("digits", "main", 1, 0)

    text = "attempt 1 starts\n" + "".join(f"line {n}\n" for n in range(20))

    def go_on() -> None:
        for end in range(20, len(text) + 1, 3):
            store.put_derived(key, text[:end].encode())
        store.put_derived(key, text.encode())
        maker.end("completed")
        maker.release("completed")

    thread = threading.Thread(target=go_on)
    thread.start()
    code, printed = raykit("logs", "digits", "--follow", at=tmp_path)
    thread.join()
    assert (code, printed) == (0, text), "each character once, to the end"


@pytest.mark.parametrize(
    ("shown", "text", "new"),
    [
        ("", "abc", "abc"),
        ("abc", "abc", ""),
        ("abc", "abcdef", "def"),
        ("a" * 500 + "tail", "[gone]\n" + "a" * 400 + "tail" + "more", "more"),
        ("abc", "something else", "something else"),
    ],
)
def test_only_what_is_new_is_printed(shown: str, text: str, new: str) -> None:
    assert reading._new_part(shown, text) == new


# --- history ------------------------------------------------------------------------------------------------


def test_history(raykit: Run) -> None:
    # covers HIST-07, HIST-10, HIST-13
    code, text = raykit("history", "digits")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split() == ["UPDATE", "ATTEMPT", "LOSS", "RATIO", "recon", "GRAD", "LR"]
    assert [line.split()[0] for line in lines[1:13]][0::11] == ["1", "40"]
    assert lines[13] == "  40 updates without a gap, of 2 attempts, 7 superseded (kept as cost)"
    assert lines[14] == "  ratio  0.961 -> 0.308, least 0.308; no skill is 1.000"
    assert lines[15].endswith("a full bar is no skill")
    assert lines[16] == "  examples by source  0: 1,600, 1: 960"


def test_history_as_json_lines(raykit: Run) -> None:
    rows = [
        Row.from_bytes(line.encode(), "it") for line in raykit("history", "digits", "--json")[1].splitlines()
    ]
    assert [row.update for row in rows] == list(range(1, 41))
    last = raykit("history", "digits", "--json", "--last", "3")[1].splitlines()
    assert [json.loads(line)["update"] for line in last] == [38, 39, 40]


def test_history_of_other_series(raykit: Run) -> None:
    lines = raykit("history", "digits", "--series", "development")[1].splitlines()
    assert lines[0].split() == ["UPDATE", "ATTEMPT", "ROWS", "ratio", "recon"]
    assert lines[-1].split() == ["40", "2", "270", "0.30827", "0.03083", "best"]
    assert "COLLAPSED" in raykit("history", "stopped", "--series", "monitor")[1]
    assert [line.split()[0] for line in raykit("history", "digits", "--last", "2")[1].splitlines()] == [
        "UPDATE",
        "39",
        "40",
    ]
    assert raykit("history", "waiting") == (0, "waiting has no train rows yet\n")
    code, text = raykit("history", "digits", "--series", "validation")
    assert code == 2
    assert "validation" in text
    assert raykit("history", "failed", "--last", "3")[1].splitlines()[1].split()[2:6] == ["-"] * 4


def test_a_changed_row_is_not_printed(raykit: Run, tmp_path: Path) -> None:
    make_run(LocalStore(tmp_path))
    segment = tmp_path / layout.segment("digits", "main", 2, "train", 31, 35)
    segment.write_bytes(segment.read_bytes().replace(b"0.3", b"0.1", 1))
    code, text = raykit("history", "digits", "--json", at=tmp_path)
    assert code == 5
    assert [json.loads(line)["update"] for line in text.splitlines()] == list(range(1, 31))


@pytest.mark.parametrize(
    ("ratios", "line"),
    [
        ([], ""),
        ([1.0, 0.5, 0.0], historylook.BARS[7] + historylook.BARS[4] + historylook.BARS[0]),
        ([2.0, None, 0.99], historylook.UNSKILLED + " " + historylook.BARS[7]),
    ],
)
def test_the_sparkline_is_drawn_against_no_skill(ratios: list[float | None], line: str) -> None:
    # covers HIST-13
    assert historylook.sparkline(ratios) == line


def test_a_long_sparkline_shows_the_trend() -> None:
    # covers HIST-14
    noisy = [1.0 - 0.0008 * i + (0.1 if i % 2 else -0.1) for i in range(1000)]
    bars = [historylook.BARS.index(c) for c in historylook.sparkline(noisy)]
    assert len(bars) <= historylook.SPARK_WIDTH
    assert bars == sorted(bars, reverse=True)
    assert bars[0] - bars[-1] >= 6


# --- checkpoints, check -------------------------------------------------------------------------------------


def test_checkpoints_list(raykit: Run) -> None:
    lines = raykit("checkpoints", "list", "digits")[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["0", "10", "20", "30", "40"]
    assert lines[-1].split()[-3:-1] == ["0.308", lines[-1].split()[-2]]
    assert lines[-1].endswith("selected")
    plain = json.loads(raykit("checkpoints", "list", "digits", "--json")[1])
    assert [item["selected"] for item in plain] == [False] * 4 + [True]
    assert raykit("checkpoints", "list", "waiting") == (0, "waiting/main has no checkpoints yet\n")


def test_checkpoints_verify(raykit: Run, tmp_path: Path) -> None:
    code, text = raykit("checkpoints", "verify", "digits")
    assert code == 0
    assert text.count("verified") == 5
    make_run(LocalStore(tmp_path))
    model = tmp_path / layout.checkpoint("digits", "main", 20, 1, "model.safetensors")
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    code, text = raykit("checkpoints", "verify", "digits", at=tmp_path)
    assert code == 5
    assert text.count("verified") == 4
    assert "model.safetensors does not match its sha256" in text
    assert raykit("checkpoints", "verify", "digits", "--update", "30", at=tmp_path)[0] == 0
    plain = json.loads(raykit("checkpoints", "verify", "digits", "--update", "20", "--json", at=tmp_path)[1])
    assert [item["ok"] for item in plain] == [False]
    assert raykit("checkpoints", "verify", "digits", "--update", "21")[0] == 2


def test_check(raykit: Run, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    make_run(store)
    code, text = raykit("check", "--read-data", at=tmp_path)
    assert code == 0
    assert text.splitlines()[0].endswith("every byte read")
    assert text.endswith("whole: no promise is broken\n")
    store.put_new(layout.checkpoint("digits", "main", 50, 2, "model.safetensors"), b"half")
    store.put_new("notes.txt", b"hello")
    code, text = raykit("check", str(tmp_path))
    assert code == 0, "orphans alone break nothing"
    assert "  1 orphan: named by nothing" in text
    assert "  1 unknown file: not raykit's\n    notes.txt  5 B\n" in text
    model = tmp_path / layout.checkpoint("digits", "main", 20, 1, "model.safetensors")
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    assert raykit("check", at=tmp_path)[0] == 0, "its size is right"
    code, text = raykit("check", "--read-data", at=tmp_path)
    assert code == 5
    assert " 1  I1  " in text
    assert text.endswith("1 broken promise\n")
    plain = json.loads(raykit("check", "--read-data", "--json", at=tmp_path)[1])
    assert (plain["ok"], len(plain["findings"]), len(plain["orphans"])) == (False, 1, 1)


def test_many_findings_are_cut_and_said_to_be(raykit: Run, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    make_run(store)
    for file in (tmp_path / "experiments/digits/runs/main/history").rglob("*.jsonl"):
        file.write_bytes(b"")
    code, text = raykit("check", at=tmp_path)
    assert code == 5
    assert "    and 5 more (--json lists all)\n" in text
    assert "25 broken promises\n" in text


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_in_a_terminal_a_long_check_shows_how_far_it_is(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["check", "--read-data", "--root", str(root)]) == 0
    assert "check" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert capsys.readouterr().out.endswith("whole: no promise is broken\n")


def test_a_terminal_does_not_obey_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    reading._write("10 %\r20 %\r\n\x1b[2J\x07\tdone\n")
    assert terminal.getvalue() == "10 % 20 %\n [2J \tdone\n"


# --- what is loaded -----------------------------------------------------------------------------------------


def test_reading_loads_nothing_heavy(root: Path) -> None:
    calls = [
        ["status"],
        ["ls"],
        ["show", "digits"],
        ["logs", "digits"],
        ["history", "digits"],
        ["checkpoints", "list", "digits"],
        ["checkpoints", "verify", "digits"],
        ["check", "--read-data"],
    ]
    program = (
        "import sys; from raykit.cli.main import main;"
        f"codes = [main([*call, '--root', {str(root)!r}]) for call in {calls!r}];"
        "heavy = {'ray', 'torch', 'numpy', 'pyarrow', 'pandas', 's3fs', 'fsspec', 'matplotlib', 'rich'};"
        "print('LOADED', set(codes), sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("LOADED {0} []\n"), done.stdout[-500:]
