"""What people say that they have learned: `raykit note`, `measured`, `counted`."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from raykit.cli import output
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    How,
    Json,
    Root,
    again,
    holds_store,
    open_root,
    person_of,
    store_line,
    words,
)
from raykit.cli.subject import Target, named
from raykit.errors import InvalidInput

if TYPE_CHECKING:
    from raykit.plan import Plan
    from raykit.records import Measured, Noted, RowsCounted

Part = Literal["gates", "setup", "update", "save", "drain", "qc", "qc-unit", "generate", "compare", "memory"]
PoolName = Literal["train", "qc", "generate", "search"]

SHORTEST_S, LONGEST_S = 0.001, 1e9


# --- note ---------------------------------------------------------------------------------------------------


def note(
    target: Target,
    incident: Annotated[
        str | None, typer.Option("--incident", metavar="TEXT", help="What went wrong, once.")
    ] = None,
    limitation: Annotated[
        str | None, typer.Option("--limitation", metavar="TEXT", help="What its results do not hold for.")
    ] = None,
    selection: Annotated[
        str | None, typer.Option("--selection", metavar="TEXT", help="An idea that was dropped, and why.")
    ] = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Keep what happened: an incident, a limitation, or an idea that was dropped. None of them is a rule.

    Raises:
        InvalidInput: not exactly one of them, no person, or words that claim a proof.
        NotFoundError: there is no such experiment.
        PlanError: the plan file is wrong.
        CorruptError: its log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.records import Noted
    from raykit.review.claims import require_bounded

    given = {"incident": incident, "limitation": limitation, "selection": selection}
    kinds = [kind for kind, text in given.items() if text is not None]
    if len(kinds) != 1:
        raise InvalidInput(
            f"{len(kinds) or 'none'} of them given",
            field="--incident",
            rule="exactly one of --incident, --limitation and --selection",
        )
    (kind,) = kinds
    text = words(given[kind], field=f"--{kind}", what=f"an empty {kind}")
    require_bounded(text, field=f"--{kind}", instead="what happened, where and when")
    person = person_of(by)
    event = Noted.model_validate({"kind": kind, "says": text, "person": person})
    rule = ": it happened once, and is no rule" if kind == "incident" else ""
    _keep(root, target, event, f"{kind}{rule}", text, as_json)


def _keep(
    root: str, target: str, event: Noted | Measured | RowsCounted, what: str, text: str, as_json: bool
) -> None:
    """Write one event, and say so."""
    from raykit.store.learned import learn

    found = open_root(root)
    name, opens = named(target)
    person, opened = event.person or "", not holds_store(found)
    told = learn(found.store, name, lambda known: event, opens=opens, person=person, at=time.time())
    if as_json:
        output.print_json({**told.event.plain(), "experiment": name, "new": told.new, "new_store": opened})
    else:
        output.print_lines([f"  kept{again(told.new)} for {name} by {person}: {what}", f"  {text}"])
        output.print_lines(store_line(found, opened))


# --- measured, counted --------------------------------------------------------------------------------------


def measured(
    target: Target,
    what: Annotated[
        Part | None, typer.Option("--what", metavar="PART", help="Which part of the work.")
    ] = None,
    time_s: Annotated[
        float | None, typer.Option("--time-s", help="How long it held the whole group of its pool.")
    ] = None,
    pool: Annotated[PoolName | None, typer.Option("--pool", help="On which pool.")] = None,
    units: Annotated[
        int, typer.Option("--units", min=1, help="How many updates or saves took so long together.")
    ] = 1,
    memory: Annotated[
        list[str] | None, typer.Option("--memory", metavar="TERM=BYTES", help="A term of the memory.")
    ] = None,
    how: How = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """A time or a memory that raykit did not measure itself: of a bill, another tool, an earlier system.

    PART is gates, setup, update, save, drain, qc, generate, compare or memory. One unit of update is one update, one
    of save is one save; one of gates, setup, drain, qc, generate and compare is all of it once, for the whole pool.

    Raises:
        InvalidInput: a figure or the person is missing or wrong, or --how names no source.
        NotFoundError: there is no such experiment.
        PlanError: the plan file is wrong.
        CorruptError: its log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.records import Measured

    if what is None:
        raise InvalidInput("of which part?", field="--what", rule=" | ".join(get_args(Part)))
    terms = dict(_term(text) for text in memory or ())
    if (what == "memory") != bool(terms):
        raise InvalidInput(
            "a memory is told by its terms, and nothing else is",
            field="--memory",
            rule="--what memory with one --memory TERM=BYTES for each term",
            remedy="--what memory --memory model=4400000000 --memory optimizer=8800000000",
        )
    event = Measured(
        what=what,
        pool=pool or _POOLS.get(what, "train"),
        time_ms=0 if what == "memory" else _time_ms(time_s, units),
        units=units,
        memory_bytes=terms,
        how=_source(how),
        person=person_of(by),
    )
    _keep(root, target, event, f"{what} on {event.pool}, {_figure(event)}", event.how, as_json)


_POOLS: Mapping[str, PoolName] = {"qc": "qc", "generate": "generate"}


def _figure(event: Measured) -> str:
    if event.memory_bytes:
        terms = ", ".join(f"{name} {output.size(n)}" for name, n in event.memory_bytes.items())
        return f"{output.size(sum(event.memory_bytes.values()))} ({terms})"
    return f"{output.duration(event.time_ms / 1000)} for {output.count(event.units)}"


def _time_ms(time_s: float | None, units: int) -> int:
    if time_s is None or not SHORTEST_S <= time_s <= LONGEST_S:
        raise InvalidInput(
            "no time is given" if time_s is None else f"{time_s} is no time that anything here takes",
            field="--time-s",
            value=str(time_s),
            rule=f"seconds, from {SHORTEST_S} to {LONGEST_S:,.0f}: all of what --units counts, together",
        )
    time_ms = round(time_s * 1000)
    if time_ms * 1000 < units:
        raise InvalidInput(
            f"{time_s} s for {output.count(units)} units is less than a microsecond for each",
            field="--units",
            value=units,
            rule=f"at most {output.count(time_ms * 1000)} units in that time",
        )
    return time_ms


def _term(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    name = name.strip()
    if (
        not 0 < len(name) <= 200
        or not name.isprintable()
        or not re.fullmatch("[0-9]{1,18}", number, re.ASCII)
    ):
        raise InvalidInput(
            f"{text[:80]!r} is no term of a memory",
            field="--memory",
            rule="TERM=BYTES, such as model=4400000000",
        )
    return name, int(number)


def _source(how: str | None) -> str:
    from raykit.review.claims import require_source

    text = words(how, field="--how", what="a figure without a source is no evidence")
    return require_source(text, field="--how")


def counted(
    target: Target,
    source: Annotated[
        str | None, typer.Option("--source", metavar="SOURCE", help="As the plan names it.")
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=0, help="The rows that it holds.")] = None,
    digest: Annotated[
        str | None, typer.Option("--digest", metavar="SHA256", help="Of what was counted.")
    ] = None,
    how: How = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """How many rows a source held, as somebody counted them where raykit cannot.

    Raises:
        InvalidInput: a figure or the person is missing or wrong, or --how names no source.
        NotFoundError: there is no such experiment.
        PlanError: the plan file is wrong.
        CorruptError: its log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.ids import DIGEST
    from raykit.records import RowsCounted
    from raykit.records.judging import MOST_ROWS

    name = words(source, field="--source", what="of which source?")
    if rows is None or rows > MOST_ROWS:
        raise InvalidInput(
            "how many rows?" if rows is None else "more rows than anybody has",
            field="--rows",
            value=None if rows is None else f"a number of {len(str(rows))} digits",
            rule=f"a whole number, from 0 to {output.count(MOST_ROWS)}",
        )
    if digest is not None and not DIGEST.fullmatch(digest):
        raise InvalidInput(
            f"{digest[:80]!r} is no sha256", field="--digest", rule="64 lower-case hexadecimal digits"
        )
    event = RowsCounted(source=name, rows=rows, digest=digest, how=_source(how), person=person_of(by))
    _require_source_of(target, name, root)
    _keep(root, target, event, f"{name} holds {output.count(rows)} rows", event.how, as_json)


def _require_source_of(target: str, source: str, root: str) -> None:
    """A count is of something that the plan names: one of its sources, or the weights that it starts from."""
    plan = _plan_of(target, root)
    if plan is None:
        return
    sources = {} if plan.data is None else plan.data.sources()
    known = sorted({name for names in sources.values() for name in names})
    known += [] if plan.base is None else [plan.base.candidate]
    if source not in known:
        raise InvalidInput(
            f"{plan.name} has no source {source!r}",
            field="--source",
            value=source,
            rule=f"as its plan names it: {' | '.join(known)}"
            if known
            else "a source of [data], or base.candidate: this plan has neither, and its recipe counts its own rows",
        )


def _plan_of(target: str, root: str) -> Plan | None:
    """The plan that is meant; None if nothing was locked under that name."""
    from raykit.cli.subject import is_file
    from raykit.read.planfile import read_plan_file
    from raykit.store.plans import newest_lock, read_plan

    if is_file(target):
        return read_plan_file(Path(target))[1]
    name, _ = named(target)
    store = open_root(root).store
    locked = newest_lock(store, name)
    return None if locked is None else read_plan(store, name, locked.plan)
