"""`raykit watch`: a run or a search live, from the store alone. Nothing here can hurt one: it reads, and may pause.

The store is asked once a second and only for what is new.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import look, output
from raykit.cli.options import DEFAULT_ROOT, By, Root, Trial, at_root, run_named
from raykit.cli.screen import Screen, cut
from raykit.errors import InvalidInput, NotFoundError

if TYPE_CHECKING:
    from rich.text import Text

    from raykit.read import Root as ReadRoot

EVERY_S = 1.0
KEYS_EVERY_S = 0.1


def watch(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="experiment, or experiment/run; the one that runs.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One look, and end.")] = False,
    trial: Trial = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """A run live: state, money, ratio, attempts and pauses, the last events. No Ray needed; a run is never stopped.

    Keys: p pauses it (and asks for the reason), l shows the last lines of rank 0's log, q leaves. Off a terminal:
    one look.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: several runs are there, and none was named.
        CorruptError: its log or its history cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    import raykit

    found = raykit.open(root)
    screen = _screen(found, run_named(found, name or _only(found), trial), by, at_root(root))
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        screen.refresh(time.time())
        output.print_lines(line for line in screen.lines(output.width() or 100))
        return
    _live(screen)


def _screen(found: ReadRoot, name: str, person: str | None, at: str) -> Screen:
    """The screen of a run, or of a search."""
    if "/" not in name and found.has_search(name):
        from raykit.cli.watchsearch import SearchScreen

        return SearchScreen(found, name, person, at)
    from raykit.cli.watchrun import RunScreen

    experiment, run = found.resolve(name)
    return RunScreen(found, experiment, person, at, run=run)


def _only(found: ReadRoot) -> str:
    """The run or search that is meant if nobody says so: the only one that is at work, or else the only one."""
    runs = [(look.short_name(view), view.holder is not None) for view in found.runs(trials=False)]
    views = [*runs, *((read.experiment, read.driven) for read in found.searches())]
    live = [name for name, at_work in views if at_work]
    for some in (live, [name for name, _ in views]):
        if len(some) == 1:
            return some[0]
    if not views:
        raise NotFoundError(
            f"there are no runs in {found.store.url}", field="RUN", remedy="raykit launch PLAN"
        )
    raise InvalidInput(
        f"there are {len(views)} runs, {len(live)} of them live",
        field="RUN",
        rule="one of " + ", ".join((live or [name for name, _ in views])[:10]),
    )


# --- the terminal -------------------------------------------------------------------------------------------


def _live(screen: Screen) -> None:
    from rich.live import Live

    console = output.console()
    with (
        suppress(KeyboardInterrupt),
        _keys() as key,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        due = 0.0
        while True:
            if time.monotonic() >= due or screen.seen_at == 0.0:
                screen.patiently(time.time())
                due = time.monotonic() + EVERY_S
            live.update(_text(screen, console.width, console.height), refresh=True)
            pressed = key(max(KEYS_EVERY_S, due - time.monotonic()))
            if not all(screen.press(each) for each in pressed):
                return


def _text(screen: Screen, columns: int, height: int) -> Text:
    from rich.text import Text

    lines = [*screen.lines(columns)][: max(1, height - 2)]
    text = Text("\n".join([*lines, "", cut(screen.foot(), columns)]), no_wrap=True, overflow="ellipsis")
    text.stylize("bold", 0, len(lines[0]))
    return text


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Keys as they are pressed, without Enter and without being shown; the terminal is left as it was."""
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read(wait_s: float) -> str:
        ready, _, _ = select.select([stdin], [], [], wait_s)
        return os.read(stdin, 1024).decode("utf-8", "ignore") if ready else ""

    try:
        tty.setcbreak(stdin)
        yield read
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
