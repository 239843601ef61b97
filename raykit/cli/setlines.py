"""A synthetic set in one line: beside its run, in `raykit status`, `show` and `watch`. Pure; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from raykit.cli import output

if TYPE_CHECKING:
    from raykit.read import RunView
    from raykit.read.setview import Made, SetRead
    from raykit.records import Rows

PERSON_ENDS = ("contract:", "experiment:")
"""Scopes whose pause is said with the set; wider ones are said once for all."""
FULL, EMPTY = "\u2588", "\u2591"


# --- one line -----------------------------------------------------------------------------------------------


def line(read: SetRead) -> str:
    """`digits-vae/digits: complete, 2,000 requested, 2,000 produced, 0 filtered, 0 failed, manifest 6c1e52ab`."""
    return f"{read.id}: {read.words}{_so_far(read)}"


def _so_far(read: SetRead) -> str:
    made = read.made
    if made is None or not made.rows.requested:
        asked = "" if read.rows is None else f", {output.count(read.rows)} rows requested"
        return f"{asked}{_pace(read)}{_parked(read)}"
    manifest = f", manifest {output.short(made.manifest_digest)}" if made.manifest_digest else ""
    scripted = ", scripted" if made.scripted and made.manifest_digest else ""
    return f", {accounts(made)}{_pace(read)}{_parked(read)}{manifest}{scripted}"


def accounts(made: Made) -> str:
    """What became of the rows. Counts are exact: 9,999,555 are not ten million."""
    if made.rows.requested == made.contract.rows:
        return f"{output.count(made.rows.requested)} requested, {_came_to(made.rows)}"
    return (
        f"{output.count(made.rows.requested)} of {output.count(made.contract.rows)} rows accounted for: "
        f"{_came_to(made.rows)}"
    )


def _came_to(rows: Rows) -> str:
    parts = ((rows.produced, "produced"), (rows.filtered, "filtered"), (rows.failed, "failed"))
    return ", ".join(f"{output.count(many)} {what}" for many, what in parts)


def _parked(read: SetRead) -> str:
    parked = 0 if read.made is None or read.state == "parked" else read.made.units["parked"]
    return f", {output.count(parked)} parked" if parked else ""


def _pace(read: SetRead) -> str:
    """Who is at it, and how long it takes at the pace of the canary."""
    made = read.made
    if made is None or read.state not in ("running", "canary"):
        return ""
    at_work = made.units["claimed"]
    if not at_work:  # a launch lives all the same: the words say so
        return ""
    many = f", {output.count(at_work)} unit{'' if at_work == 1 else 's'} in hand"
    if made.canary is None:
        return many
    left = made.contract.rows - made.rows.requested
    left_s = made.canary.whole_ms / 1000 * left / made.contract.rows / max(1, at_work)
    return f"{many}, about {output.duration(max(1.0, left_s))} left"


# --- with its run ---------------------------------------------------------------------------------------------


def lines(view: RunView) -> Iterator[str]:
    """Sets of a run that wait for nobody: how far they are."""
    yield from (f"  {line(read)}" for read in view.sets if not _is_said(view, read))


def wants(view: RunView, at: str) -> Iterator[str]:
    """Sets of a run that wait for a person or a launch, each with its next command."""
    for read in view.sets:
        if _is_said(view, read):
            yield from standing(read, at)


def standing(read: SetRead, at: str) -> Iterator[str]:
    """How far a set is, and what goes on with it."""
    yield f"  {line(read)}"
    yield from way_on(read, at)


def way_on(read: SetRead, at: str) -> Iterator[str]:
    """The commands that go on with a set, and what stands in them for something."""
    if read.command is not None:
        yield from (f"  -> {each}{at}" for each in (read.command, read.then) if each is not None)
        yield from (f"     {word} is {what}" for word, what in read.needs.items())


def _is_said(view: RunView, read: SetRead) -> bool:
    """Whether somebody has to do something for it now that nothing else says."""
    if read.command is None or view.state != "completed":
        return False
    return read.pause is None or read.pause.pause.scope.startswith(PERSON_ENDS)


def band(view: RunView, columns: int) -> list[str]:
    """Every set of a run for `raykit watch`: a bar of the rows that are accounted for, and words."""
    width = max(10, min(30, columns // 4))
    return [f"  SET    {_bar(read, width)}  {read.name}: {_in_short(read)}" for read in view.sets]


def _bar(read: SetRead, width: int) -> str:
    made = read.made
    done = 0 if made is None else width * made.rows.requested // made.contract.rows
    return FULL * done + EMPTY * (width - done)


def _in_short(read: SetRead) -> str:
    made = read.made
    if made is None:
        return f"waits: {read.words.removeprefix('waits for ')}" if read.state == "waiting" else read.words
    rows, whole = made.rows, output.count(made.contract.rows)
    parts = [f"{output.count(rows.requested)}/{whole} rows"]
    parts += [
        f"{output.count(n)} {what}" for n, what in ((rows.filtered, "filtered"), (rows.failed, "failed")) if n
    ]
    return f"{read.words} {output.DOT} {', '.join(parts)}{_parked(read)}"
