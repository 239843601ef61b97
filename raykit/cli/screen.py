"""One screen of `raykit watch`: what was looked at last, the keys, and the one line that a person may be typing.

It only reads, and may pause; what its bands show belongs to `watchrun` and `watchsearch`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raykit.cli import money as show_money
from raykit.cli import output
from raykit.cli.options import person_of
from raykit.errors import NotFoundError, RaykitError

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read.money import Money

EVENTS = 10
"""So many lines of events, or of a log, are shown."""
FULL, KEPT_BACK, PART, EMPTY = "\u2588", "\u2592", "\u2593", "\u2591"
ENTER, ESCAPE, BACKSPACE, CTRL_C = ("\r", "\n"), "\x1b", ("\x7f", "\b"), "\x03"
LONGEST_REASON = 200


@dataclass(slots=True)
class Screen(ABC):
    """What is on the screen of one experiment."""

    found: ReadRoot
    experiment: str
    person: str | None = None
    at: str = ""
    """` --root ROOT`, where commands that are printed need it."""
    seen_at: float = 0.0
    trouble: str | None = None
    """Why the newest look failed; what is shown is then the one before it."""
    typing: str | None = None
    """The reason of a pause, as far as it was typed."""
    said: str = ""
    show_log: bool = False
    rank_log: Sequence[str] = ()

    @abstractmethod
    def refresh(self, now: float) -> None:
        """Look again.

        Raises:
            NotFoundError: it is not there.
            CorruptError: it cannot be read.
            StoreUnavailableError: the store did not answer.
        """

    @abstractmethod
    def bands(self, columns: int, now: float) -> Iterator[Sequence[str]]:
        """What is shown, group by group; nothing before the first look."""

    @abstractmethod
    def wants(self, now: float) -> Iterator[str]:
        """What somebody has to do; lines with ` -> ` are commands, and are never cut."""

    def look_now(self) -> None:
        """Let the next look come at once."""
        self.seen_at = 0.0

    def patiently(self, now: float) -> None:
        """Look again; a store that does not answer is said, and asked again the next time."""
        try:
            self.refresh(now)
        except RaykitError as error:
            self.trouble = error.message

    def lines(self, columns: int) -> Iterator[str]:
        """The bands, as text that fits into `columns`."""
        now = self.seen_at or time.time()
        bands = [*self.bands(columns, now)]
        if not bands:
            yield output.clean(f"{self.experiment}: {self.trouble or 'nothing read yet'}")
            return
        for n, band in enumerate(bands):
            if n and band:
                yield ""
            yield from (cut(output.clean(line), columns) for line in band)
        notes = [*self.wants(now)]
        if notes:
            yield ""
        for note in notes:
            whole = note.startswith("  -> ")
            yield from [note] if whole else output.wrapped(note.strip(), columns)

    def foot(self) -> str:
        """The last line: what is being typed, what was said, or the keys."""
        if self.typing is not None:
            return f"pause, because: {self.typing}_   (Enter pauses, Esc leaves it)"
        keys = f"p pause   l {'events' if self.show_log else 'log of rank 0'}   q leave (the run goes on)"
        note = self.said or (f"the store: {self.trouble}" if self.trouble else "")
        return output.clean(f"{keys}   {note}").rstrip()

    # --- keys -----------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Take one key; False if it leaves."""
        if key == CTRL_C:
            return False
        if self.typing is not None:
            self._type(key)
            return True
        self.said = ""
        match key.lower():
            case "q":
                return False
            case "p":
                self.typing = ""
            case "l":
                self.show_log = not self.show_log
                self.look_now()
        return True

    def _type(self, key: str) -> None:
        assert self.typing is not None
        if key == ESCAPE:
            self.typing, self.said = None, "not paused"
        elif key in ENTER:
            reason, self.typing = self.typing.strip(), None
            self.said = self._pause(reason) if reason else "not paused: a pause needs a reason"
            self.look_now()
        elif key in BACKSPACE:
            self.typing = self.typing[:-1]
        elif key.isprintable() and len(self.typing) < LONGEST_REASON:
            self.typing += key

    def _pause(self, reason: str) -> str:
        from raykit.store import people

        try:
            person = person_of(self.person, needed=False)
            scope = f"experiment:{self.experiment}"
            said = people.pause(self.found.store, scope, reason=reason, person=person, at=time.time())
        except RaykitError as error:
            return f"not paused: {error.message}"
        if said.new or said.holds is None:
            return f"pause requested by {person}"
        return f"already {said.holds.words}"


# --- what every screen shows ---------------------------------------------------------------------------------


def cut(line: str, columns: int) -> str:
    """A line as far as it fits."""
    return line if len(line) <= columns else line[: columns - 1] + "\u2026"


def last_lines(found: ReadRoot, experiment: str, run: str) -> list[str]:
    """The end of the newest log of rank 0 that a run has kept; what to say instead, where there is nothing in it."""
    from raykit.store import layout

    folder = layout.worker_log(experiment, run, 1, 0).rpartition("/")[0].rpartition("/")[0]
    known = (layout.known(item.key) for item in found.store.list(folder))
    logs = [item.parts for item in known if item is not None and item.kind == "worker-log"]
    attempt = max((int(parts["attempt"]) for parts in logs if int(parts["rank"]) == 0), default=None)
    if attempt is None:
        return ["no log yet"]
    try:
        text = found.store.get(layout.worker_log(experiment, run, attempt, 0)).decode("utf-8", "replace")
    except NotFoundError:
        return [f"no log of attempt {attempt} yet"]
    lines = [output.clean(line) for line in text.splitlines()[-EVENTS:]]
    return lines or [f"rank 0 has printed nothing in attempt {attempt}"]


def money_band(money: Money | None, columns: int) -> list[str]:
    """Spent, reserved, kept and free of the ceiling, as one bar."""
    if money is None:
        return []
    if not money.billed:
        return ["  MONEY  not billed"]
    kept = sum(max(0, line.remaining) for line in money.lines if line.purpose in ("confirmation", "recovery"))
    free = max(0, money.remaining - kept)
    parts = [(money.actual, FULL), (money.reserved, PART), (kept, KEPT_BACK), (free, EMPTY)]
    ceiling = show_money.limit(money.ceiling, money.unit)
    width = max(10, min(50, columns - len(ceiling) - 12))
    names = ("spent", "reserved", "kept", "free")
    legend = "   ".join(
        f"{mark} {name} {output.money(amount, money.unit)}"
        for (amount, mark), name in zip(parts, names, strict=True)
    )
    return [f"  MONEY  {_bar(parts, width)}  {ceiling}", f"         {legend}"]


def _bar(parts: Sequence[tuple[int, str]], width: int) -> str:
    """Shares of a whole in characters; what is there at all has one."""
    whole = sum(amount for amount, _ in parts) or 1
    cells = [max(1, round(width * amount / whole)) if amount else 0 for amount, _ in parts]
    cells[cells.index(max(cells))] += width - sum(cells)
    return "".join(mark * count for (_, mark), count in zip(parts, cells, strict=True))
