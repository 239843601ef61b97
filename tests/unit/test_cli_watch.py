"""`raykit watch`: five bands from the store alone, and keys that cannot stop a run."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from makebudget import PaidByNode
from makerun import RunMaker, make_run

import raykit
from raykit.cli import watchrun
from raykit.cli.main import main
from raykit.cli.screen import EVENTS
from raykit.cli.watchrun import RunScreen
from raykit.errors import StoreUnavailableError
from raykit.history import lineage
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.people import read_acts
from raykit.store.place import this_place
from raykit.testing import MemoryStore

TIMEOUT_S = 60.0
Command = Callable[..., tuple[int, str, str]]


def paid(root: Path) -> PaidByNode:
    """A run that goes on in this process and is paid for."""
    maker = PaidByNode(
        LocalStore(root), experiment="refresh", updates=1430, place=this_place(), at=time.time() - 600
    )
    maker.freeze()
    maker.approve()
    maker.launch()
    maker.begin(hours=2)
    for n in range(4):
        maker.at = max(maker.at, time.time() - 5) if n == 3 else maker.at
        maker.rows(10)
        maker.look()
        maker.commit()
    return maker


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def screen(maker: RunMaker, *, later_s: float = 1.0) -> RunScreen:
    found = raykit.open(maker.store, clock=lambda: maker.at + later_s)
    return RunScreen(found, maker.experiment, "mira", run=maker.run)


# --- one look -----------------------------------------------------------------------------------------------


def test_off_a_terminal_it_is_one_look(command: Command, tmp_path: Path) -> None:
    paid(tmp_path)
    code, out, _ = command("watch", "refresh")
    assert code == 0
    bands = [band.splitlines() for band in out.split("\n\n")]
    assert bands[0][0].startswith("refresh \u00b7 RUNNING \u00b7 health ok \u00b7 heard ")
    assert bands[0][1].startswith(
        "  update 40/1,430 \u00b7 0.5 s/update \u00b7 11m35 left \u00b7 ratio 0.308"
    )
    assert re.fullmatch(r"  MONEY  [\u2588\u2593\u2592\u2591]{50}  below 900.00 USD", bands[1][0])
    assert re.search(
        r"spent \$[34]\.\d\d   \S reserved \$46\.\d\d   \S kept \$582   \S free \$26\d$", bands[1][1]
    )
    assert bands[2][1].endswith("ratio 0.308 now; a full bar is 1.000, no skill")
    assert bands[3][0].endswith("attempt 1  from 0 and goes on")
    assert bands[4][-2].endswith("rows 31 to 40")
    assert bands[4][-1].endswith("checkpoint 40 (cadence, 9.6 kB)")
    assert len(bands[4]) == EVENTS
    assert command("watch", "--once")[1].splitlines()[0].startswith("refresh"), "the one that runs"


def test_which_run_is_meant(command: Command, tmp_path: Path) -> None:
    code, _, err = command("watch")
    assert (code, "there are no runs" in err) == (2, True)
    make_run(LocalStore(tmp_path))
    assert command("watch")[1].startswith("digits \u00b7 COMPLETED")
    make_run(LocalStore(tmp_path), experiment="more")
    code, _, err = command("watch")
    assert code == 2
    assert "there are 2 runs, 0 of them live" in err
    assert "one of digits, more" in err
    assert command("watch", "digit")[0] == 2


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_bands_fit(columns: int, tmp_path: Path) -> None:
    shown = screen(paid(tmp_path))
    shown.refresh(time.time())
    lines = [line for line in shown.lines(columns) if not line.startswith("  -> ")]
    assert max(map(len, lines)) <= columns


def test_pauses_and_attempts_are_on_one_line_of_time() -> None:
    maker = make_run(MemoryStore())
    shown = screen(maker)
    shown.refresh(maker.at)
    text = "\n".join(shown.lines(100))
    assert "attempt 1  from 0 to 27, killed" in text
    assert "attempt 2  from 20, exact (declared) to 40, completed" in text
    assert "updates 21 to 27 superseded" in text


def test_what_it_waits_for_is_said() -> None:
    maker = RunMaker(MemoryStore())
    maker.freeze()
    maker.launch()
    maker.begin()
    shown = screen(maker, later_s=1000.0)
    shown.refresh(maker.at)
    assert "  -> raykit resume digits" in list(shown.lines(100))


# --- what it costs ------------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Counts what is read of segments."""

    def __init__(self) -> None:
        super().__init__()
        self.segments: list[str] = []

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        if "/history/" in key:
            self.segments.append(key)
        return super().get(key) if max_bytes is None else super().get(key, max_bytes=max_bytes)


def test_the_curve_of_a_long_run_is_read_once_and_in_part() -> None:
    store = Counting()
    maker = RunMaker(store, updates=5000)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(600, every=2)
    curve = watchrun.Curve(store)
    store.segments.clear()
    first = curve.points(lineage(maker.log.state.events, "train"))
    assert len(store.segments) == len(first) <= watchrun.MOST_SEGMENTS
    assert first[0] is not None
    assert first[0] > 0.9 > 0.3 > (first[-1] or 0.0)
    store.segments.clear()
    maker.rows(2, every=2)
    curve.points(lineage(maker.log.state.events, "train"))
    assert len(store.segments) <= 2, "only what is new"


def test_nothing_new_is_nothing_read_again() -> None:
    store = Counting()
    maker = RunMaker(store, at=time.time() - 100)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(10)
    maker.flush()
    shown = screen(maker)
    shown.refresh(maker.at)
    store.segments.clear()
    shown.refresh(maker.at + 1.0)
    assert store.segments == []
    maker.rows(5)
    maker.flush()
    shown.refresh(maker.at + 1.0)
    assert shown.view is not None
    assert shown.view.update == 15


def test_a_store_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = make_run(MemoryStore())
    shown = screen(maker)
    shown.patiently(maker.at)
    before = list(shown.lines(100))

    def away(*_: object, **__: object) -> bytes:
        raise StoreUnavailableError("the store did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(maker.store, "get", away)
        shown.patiently(maker.at)
        assert list(shown.lines(100)) == before
        assert shown.foot().endswith("the store: the store did not answer")
    shown.patiently(maker.at)
    assert shown.trouble is None


# --- keys ---------------------------------------------------------------------------------------------------


def typed(shown: RunScreen, keys: str) -> list[bool]:
    return [shown.press(key) for key in keys]


def test_p_asks_for_the_reason_and_pauses() -> None:
    # covers RAY-10
    maker = make_run(MemoryStore())
    shown = screen(maker)
    assert typed(shown, "p") == [True]
    assert shown.foot() == "pause, because: _   (Enter pauses, Esc leaves it)"
    assert all(typed(shown, "quietx\x7f\x7f")), "q is a letter of the reason"
    assert shown.foot().startswith("pause, because: quie_")
    typed(shown, "t please\r")
    assert shown.foot().endswith("pause requested by mira")
    held = read_acts(maker.store, "digits").pauses["experiment:digits"]
    assert (held.pause.reason, held.pause.person) == ("quiet please", "mira")
    typed(shown, "pagain\r")
    assert shown.foot().endswith("already paused by mira: quiet please")


@pytest.mark.parametrize("keys", ["p\r", "p  \r", "pbecause\x1b"])
def test_without_a_reason_nothing_is_paused(keys: str) -> None:
    maker = make_run(MemoryStore())
    shown = screen(maker)
    assert all(typed(shown, keys))
    assert "not paused" in shown.foot()
    assert read_acts(maker.store, "digits").pauses == {}


def test_l_shows_the_log_of_rank_0() -> None:
    maker = make_run(MemoryStore())
    maker.store.put_derived(
        layout.worker_log("digits", "main", 2, 0), b"".join(b"line %d\n" % n for n in range(50))
    )
    shown = screen(maker)
    shown.refresh(maker.at)
    typed(shown, "l")
    shown.refresh(maker.at)
    lines = list(shown.lines(100))
    assert lines[-EVENTS:] == [f"line {n}" for n in range(50 - EVENTS, 50)]
    assert "l events" in shown.foot()
    typed(shown, "L")
    assert not any(line.startswith("line ") for line in shown.lines(100))


@pytest.mark.parametrize("key", ["q", "Q", "\x03"])
def test_q_leaves_and_stops_nothing(key: str) -> None:
    maker = make_run(MemoryStore())
    shown = screen(maker)
    before = maker.log.refresh()
    assert typed(shown, key) == [False]
    assert maker.log.refresh() == before == []
    assert read_acts(maker.store, "digits").pauses == {}


# --- a terminal ---------------------------------------------------------------------------------------------


@dataclass
class Pty:
    """A process on a terminal of its own."""

    process: subprocess.Popen[bytes]
    master: int
    seen: str = field(default="")

    def wait_for(self, text: str) -> None:
        """Read until `text` was written."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"waited for {text!r} in {self.seen[-2000:]!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"it ended before {text!r}: {self.seen[-2000:]!r}") from None

    def press(self, keys: str) -> None:
        self.seen = ""
        os.write(self.master, keys.encode())


@contextmanager
def on_a_terminal(root: Path, *arguments: str, size: tuple[int, int] = (40, 100)) -> Iterator[Pty]:
    import fcntl
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "raykit", "watch", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environment, "RAYKIT_ROOT": str(root), "RAYKIT_PERSON": "mira", "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Pty(process, master)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        os.close(master)


def test_on_a_terminal_it_follows_and_pauses_and_leaves(tmp_path: Path) -> None:
    maker = paid(tmp_path)
    with on_a_terminal(tmp_path, "refresh") as terminal:
        terminal.wait_for("q leave (the run goes on)")
        assert "refresh \u00b7 RUNNING" in terminal.seen
        maker.rows(5)
        maker.commit()
        terminal.wait_for("45/1,430")
        terminal.press("p")
        terminal.wait_for("pause, because: _")
        terminal.press("inference\r")
        terminal.wait_for("PAUSING")
        terminal.press("q")
        assert terminal.process.wait(TIMEOUT_S) == 0
    assert read_acts(maker.store, "refresh").pauses["experiment:refresh"].pause.reason == "inference"
    assert maker.log.state.stop is None, "leaving asks nobody to stop"


def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    import termios

    paid(tmp_path)
    with on_a_terminal(tmp_path, "refresh", size=(12, 40)) as terminal:
        terminal.wait_for("q leave")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(TIMEOUT_S) == 0
        assert termios.tcgetattr(terminal.master)[3] & (termios.ECHO | termios.ICANON)
