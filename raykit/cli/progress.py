"""How a launch looks while it goes on: one moving bar in a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from raykit.cli import output
from raykit.shards.units import rate

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from raykit.fleet.follow import Glimpse
    from raykit.fleet.generate.run import Making
    from raykit.fleet.search.outcome import SearchGlimpse

LINE_EVERY_S = 10.0
MOST_LIVE = 4
"""So many rows at work are named beside the bar."""


class Display(Protocol):
    """Where a launch shows itself."""

    def tell(self, glimpse: Glimpse) -> None: ...

    def tell_set(self, making: Making) -> None: ...

    def tell_search(self, seen: SearchGlimpse) -> None: ...

    def say(self, line: str) -> None: ...


@contextmanager
def display(*, quiet: bool) -> Iterator[Display]:
    """A bar if stderr is a terminal, lines otherwise; with `quiet` nothing: whoever reads JSON is told errors alone."""
    if quiet or not sys.stderr.isatty():
        yield _Quiet() if quiet else _Lines()
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("  {task.description:<9}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=output.console(sys.stderr)) as progress:
        yield _Bar(progress)


@contextmanager
def bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal, told how much of how much is done; nothing anywhere else."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import Progress

    with Progress(console=output.console(sys.stderr), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def tell(self, glimpse: Glimpse) -> None:
        self._show(glimpse.phase, glimpse.update, glimpse.updates, _detail(glimpse))

    def tell_set(self, making: Making) -> None:
        self._show(making.name, making.rows, making.rows_requested, _pace(making))

    def tell_search(self, seen: SearchGlimpse) -> None:
        self._show("trials", seen.ended, seen.rows, _trials(seen))

    def _show(self, what: str, done: int, total: int, detail: str) -> None:
        if self._task is None:
            self._task = self._progress.add_task("", total=total, count="", detail="")
        self._progress.update(
            self._task,
            completed=done,
            total=total,
            description=what,
            count=f"{output.count(done)}/{output.count(total)}",
            detail=detail,
        )

    def say(self, line: str) -> None:
        self._progress.console.print(f"  {output.clean(line)}")


class _Quiet:
    def tell(self, glimpse: Glimpse) -> None:
        pass

    def tell_set(self, making: Making) -> None:
        pass

    def tell_search(self, seen: SearchGlimpse) -> None:
        pass

    def say(self, line: str) -> None:
        pass


class _Lines:
    def __init__(self) -> None:
        self._last: tuple[str, int, str | None] = ("", -1, None)
        self._at = 0.0
        self._heard = True

    def tell(self, glimpse: Glimpse) -> None:
        if self._is_due((glimpse.phase, glimpse.update, glimpse.qc)):
            done = f"{output.count(glimpse.update)}/{output.count(glimpse.updates)}"
            self.say(f"{glimpse.phase:<9} {done}  {_detail(glimpse)}")

    def tell_set(self, making: Making) -> None:
        if self._is_due((making.name, making.rows, "canary" if making.canary else None)):
            done = f"{output.count(making.rows)}/{output.count(making.rows_requested)} rows"
            self.say(f"{making.name:<9} {done}  {_pace(making)}")

    def tell_search(self, seen: SearchGlimpse) -> None:
        if self._is_due(("trials", seen.ended, _trials(seen))):
            self.say(f"trials    {output.count(seen.ended)}/{output.count(seen.rows)}  {_trials(seen)}")

    def _is_due(self, looks: tuple[str, int, str | None]) -> bool:
        """Whether there is something new to say, and enough time has passed."""
        now = time.monotonic()
        due = looks[0] != self._last[0] or now - self._at >= LINE_EVERY_S
        if looks == self._last or not due:
            return False
        self._last, self._at = looks, now
        return True

    def say(self, line: str) -> None:
        if self._heard:
            try:
                sys.stderr.write(f"  {output.clean(line.rstrip())}\n")
                sys.stderr.flush()
            except BrokenPipeError:
                self._heard = False  # whoever listened has gone; the run is not theirs to end


def _detail(glimpse: Glimpse) -> str:
    parts = []
    if glimpse.updates_per_s:
        parts.append(f"{glimpse.updates_per_s:.3g} updates/s")
    if glimpse.ratio is not None:
        parts.append(f"ratio {glimpse.ratio:.3f} (no skill 1.000)")
    if glimpse.left_s and glimpse.phase == "training":
        parts.append(f"{output.duration(glimpse.left_s)} left")
    if glimpse.qc:
        parts.append(f"qc {glimpse.qc}")
    return " · ".join(parts)


def _trials(seen: SearchGlimpse) -> str:
    """What is at work, how far each of it is, and the best so far."""
    parts = []
    for live in seen.live[:MOST_LIVE]:
        parts.append(f"{live.run} {_far(live.glimpse)}")
    if len(seen.live) > MOST_LIVE:
        parts.append(f"and {len(seen.live) - MOST_LIVE} more")
    if seen.best is not None:
        parts.append(f"best {seen.metric} {seen.best[1]:.4g} ({seen.best[0]})")
    if seen.qc:
        parts.append(f"qc {seen.qc}")
    return " \u00b7 ".join(parts)


def _far(glimpse: Glimpse | None) -> str:
    """How far one trial is: its update, or what it does before its first one."""
    if glimpse is None:
        return "starting"
    if glimpse.update:
        return output.count(glimpse.update)
    return "starting" if glimpse.phase == "training" else glimpse.phase


def _pace(making: Making) -> str:
    parts = ["canary"] if making.canary else []
    if making.rows_per_s:
        parts.append(f"{rate(making.rows_per_s)} rows/s")
    parts.append(f"{making.workers} worker{'' if making.workers == 1 else 's'}")
    if making.eta_s:
        parts.append(f"{output.duration(making.eta_s)} left")
    return " · ".join(parts)
