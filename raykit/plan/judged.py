"""What was known and weighed when a plan was judged: kept in its lock, so that an approval can be read years later.

Texts are shown as they are; amounts are micro-units of `unit`, times milliseconds of one accelerator group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import StringConstraints

from raykit.ids import Digest, Name
from raykit.plan.deciding import Start
from raykit.records import Count, Line, Micros, Milliseconds, Record, Unit

Cell = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]
"""One cell of a table that people read: never empty."""

Stage = Literal["screening", "confirmation"]


class LockedBase(Record):
    """The weights that a plan starts from or weighs, by their bytes."""

    candidate: str
    """As the plan names it."""
    origin: Literal["run", "adopted"]
    experiment: Name
    """The experiment that trained it; of an adopted one, its name among the candidates."""
    update: Count
    attempt: Count
    """0 for an adopted one."""
    manifest: Digest
    """Digest of the manifest that lists its files."""
    key: str
    """The manifest's key in the store."""


class RowChange(Record):
    """How the rows differ from those that the base was trained on. A whole of 0 rows is no base."""

    before: Count
    after: Count
    added: Count
    removed: Count
    relabelled: Count
    """Rows with the same id and other content or another target."""

    @property
    def unchanged(self) -> int:
        return self.before - self.removed - self.relabelled

    @property
    def changed(self) -> int:
        return self.added + self.removed + self.relabelled


class Option(Record):
    """One way to reach the decision, in the fixed order: use, continue, replay, pilot, fresh."""

    option: Start
    what: Cell
    """In words, such as `continue, 25 % new, 75 % old`."""
    preserves: Cell
    """What of the trained state stays."""
    discards: Cell
    repeats: Cell
    """The compute that is done again, such as `95,000 of 99,750 updates`."""
    repeats_updates: Count
    time: Cell
    time_ms: Milliseconds | None
    """None if nothing says how long."""
    accelerator_ms: Count | None
    cost: Micros | None
    value: Cell
    """What it tells, scientifically."""
    risk: Cell
    """What may go wrong in practice."""
    against: Cell | None = None
    """Why not this one, where the plan or the store says so."""
    possible: bool = True
    chosen: bool = False
    recommended: bool = False


class RunSeen(Record):
    """An earlier run that was looked at, however it ended."""

    experiment: Name
    state: str
    """completed, failed, cancelled, killed, paused, running."""
    update: Count
    updates: Count
    outcome: str | None = None
    """What people concluded from it, where they did."""


class Looked(Record):
    """The scope of the review of earlier runs: what was looked at, and what could not be."""

    store: str
    runs: tuple[RunSeen, ...] = ()
    unread: tuple[Name, ...] = ()
    """Experiments that are there and could not be read."""

    @property
    def words(self) -> str:
        """Never that there is no run: only that this store shows none."""
        if not self.runs:
            return f"{self.store} shows no related run; runs elsewhere were not looked at"
        return f"{len(self.runs)} related in {self.store}; runs elsewhere were not looked at"


class Judged(Record):
    """What the review saw, and what it came to."""

    stage: Stage
    stage_why: Cell
    base: LockedBase | None = None
    rows: RowChange | None = None
    settings: tuple[str, ...] = ()
    """What else shapes the weights and differs from the base, as `run.params.lr: 0.001 -> 0.0001`."""
    options: tuple[Option, ...] = ()
    unit: Unit = "usd"
    ceiling: Micros
    lines: tuple[Line, ...]
    worst: Micros
    """All that may be spent without any reserve."""
    expected: Micros
    expected_ms: Milliseconds
    uncertain: bool
    """The times are guesses: nothing compatible has been measured."""
    rates: Mapping[Name, Cell]
    """By pool: rate, source and how it is billed."""
    passed: tuple[str, ...]
    """The review items that hold."""
    limitations: tuple[str, ...] = ()
    looked: Looked
