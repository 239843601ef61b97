"""`raykit generate`: making the synthetic sets of a plan, seeing how far they are, and taking them out of the store."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raykit.cli import generatelook, output
from raykit.cli.approving import Approve, approving
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Reason,
    Root,
    Scripted,
    at_plan,
    at_root,
    is_scripted,
    open_root,
    person_of,
    require_store,
    words,
)
from raykit.cli.progress import bar, display
from raykit.errors import GateError, InvalidInput, NotFoundError

if TYPE_CHECKING:
    from raykit.fleet.generate.run import Outcome
    from raykit.fleet.generate.sets import Changed
    from raykit.read import Root as ReadRoot
    from raykit.read.money import LineMoney
    from raykit.read.setview import Made, SetRead
    from raykit.records import Unit as MoneyUnit

LINE = "generate"
"""Of the budget: what pays for synthetic sets."""

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")]
Set = Annotated[
    str, typer.Argument(metavar="EXPERIMENT/SET", help="A set; its experiment, where that has only one.")
]
Units = Annotated[list[int] | None, typer.Option("--unit", min=0, help="A unit by its number; repeatable.")]


# --- making -------------------------------------------------------------------------------------------------


def generate(
    plan: Plan,
    only: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Only this set of the plan.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Workers at most; as the plan's pool by default.")
    ] = None,
    changed: Annotated[
        str | None,
        typer.Option(
            "--changed", metavar="WHY", help="Go on under another contract, deliberately; kept for ever."
        ),
    ] = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            "--reuse", metavar="SPANS", help="With --changed: published units that count: all, or 0-57,60."
        ),
    ] = None,
    approve: Approve = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Make the synthetic sets of a plan from its approved checkpoint, or go on where they were left.

    The first units are made by one worker and judged; then others join. What is published is never made again, and a
    set that is complete is left alone: the same command is always safe. A plan that says something else by now is
    refused with the fields that differ, unless --changed says why.

    SIGTERM, Ctrl-C and `raykit pause` end it at the next unit with exit code 4; the same command goes on.

    Raises:
        InvalidInput: --reuse without --changed.
        RaykitError: whatever refuses the sets, or ended them.
    """
    from raykit.fleet.generate.run import generate as make
    from raykit.report.sets import picture_key, put_samples

    said, found = _changed(changed, reuse, by, scripted), open_root(root)
    with at_plan(plan, root, makes_sets=True), display(quiet=as_json) as shown:
        outcome = make(
            plan,
            root,
            only=only,
            workers=workers,
            changed=said,
            approved=approving(approve, by, scripted),
            say=shown.say,
            tell=shown.tell_set,
        )
        reads = [each for each in _reads(found, outcome.experiment, whole=False) if each.name in outcome.sets]
        reads = [_of_plan(each, plan) for each in reads]
        new = [each for each in reads if outcome.sets[each.name].new]
        drawn = put_samples(found.store, new, say=shown.say)
    pictures = {name: picture_key(outcome.experiment, name) for name in drawn}
    if as_json:
        output.print_json(_told(outcome, reads, pictures))
    else:
        places = [f"{found.store.url}/{key}" for key in pictures.values()]
        cost = outcome.cost and output.amount(outcome.cost, _money(found, outcome.experiment)[1])
        output.print_lines(generatelook.after_launch(reads, places, outcome.why, cost or None, at_root(root)))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _of_plan(read: SetRead, plan: Path) -> SetRead:
    """With the file of its plan in its commands."""
    if read.command is None or not read.needs:
        return read
    file = shlex.quote(str(plan))
    return replace(read, plan=file, command=re.sub(r"\bPLAN\b", lambda _: file, read.command))


def _told(outcome: Outcome, reads: Sequence[SetRead], pictures: Mapping[str, str]) -> dict[str, Any]:
    """A launch as JSON values."""
    return {
        "experiment": outcome.experiment,
        "sets": {each.name: each.brief() for each in reads},
        "manifests": {name: each.manifest for name, each in outcome.sets.items()},
        "new": [name for name, each in outcome.sets.items() if each.new],
        "pictures": dict(pictures),
        "cost_micros": outcome.cost,
        "exit_code": outcome.exit_code,
        "why": outcome.why,
    }


def _changed(why: str | None, reuse: str | None, by: str | None, scripted: bool) -> Changed | None:
    """What a person says who lets a set go on under another contract."""
    if why is None and reuse is None:
        return None
    if why is None:
        raise InvalidInput(
            "units are only reused under another contract",
            field="--reuse",
            value=reuse,
            rule="together with --changed, which says why",
        )
    from raykit.fleet.generate.sets import Changed

    said = words(why, field="--changed", what="why does the set go on under another contract?")
    return Changed(why=said, person=person_of(by), scripted=is_scripted(scripted), reuse=reuse)


# --- looking ------------------------------------------------------------------------------------------------


def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[EXPERIMENT[/SET]]", help="A set, or an experiment; all by default."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """How far each synthetic set is: rows requested, produced, filtered and failed, the canary, what it waits for.

    Of one set everything: its contract, the options that were measured, why rows were filtered or failed, its manifest.
    Only rows that are persisted count.

    Raises:
        NotFoundError: there is no such experiment or set, or nothing at the root.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    found = open_root(root)
    require_store(found)
    at = at_root(root)
    if name is None:
        reads = [read for each in found.experiments() for read in _reads(found, each, whole=False)]
        one = False
    else:
        reads = _named(found, name)
        one = len(reads) == 1
    if as_json:
        plain = [read.plain() for read in reads]
        output.print_json(plain[0] if one else plain)
    elif one:
        money, unit = _money(found, reads[0].experiment)
        output.print_lines(generatelook.whole(reads[0], money, unit, at))
    else:
        output.print_lines(generatelook.all_of_them(reads, output.width(), at))


def _reads(found: ReadRoot, experiment: str, *, whole: bool) -> tuple[SetRead, ...]:
    from raykit.read.generation import read_sets

    return read_sets(found.store, experiment, now=time.time(), whole=whole)


def _named(found: ReadRoot, name: str) -> list[SetRead]:
    """The sets that a name means, whole."""
    experiment, slash, set_name = name.partition("/")
    if experiment not in found.experiments():
        found.resolve(experiment)  # says which names are close
    reads = _reads(found, experiment, whole=True)
    named = [read for read in reads if not slash or read.name == set_name]
    if not named:
        there = ", ".join(read.id for read in reads)
        raise NotFoundError(
            f"there is no synthetic set {name}",
            field="SET",
            value=name,
            rule=there or f"a plan of {experiment} with a table [generate.NAME]",
            remedy="raykit generate status",
        )
    return named


def _one(found: ReadRoot, name: str) -> tuple[SetRead, Made]:
    """The one set that a name means, and what is made of it."""
    reads = _named(found, name)
    if len(reads) > 1:
        raise InvalidInput(
            f"{name} has {len(reads)} sets",
            field="SET",
            value=name,
            rule="one of " + ", ".join(read.id for read in reads),
        )
    read = reads[0]
    if read.made is None:
        raise GateError(
            f"{read.id} {read.words if read.state == 'waiting' else 'has no contract yet'}",
            field="SET",
            value=read.id,
            rule="a set whose contract is frozen",
            remedy=read.command,
        )
    return read, read.made


def _money(found: ReadRoot, experiment: str) -> tuple[LineMoney | None, MoneyUnit]:
    """The line of the budget that pays for the sets of an experiment, where it is billed."""
    try:
        money = found.money(experiment)
    except NotFoundError:
        return None, "usd"
    lines = [each for each in money.lines if each.line == LINE and money.billed]
    return (lines[0] if lines else None), money.unit


# --- taking it out ------------------------------------------------------------------------------------------


def export(
    name: Set,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A folder that is not there yet, or empty.")],
    form: Annotated[
        Literal["parquet", "jsonl"],
        typer.Option("--format", help="What the files in it are: parquet | jsonl, one row a line."),
    ] = "parquet",
    manifest: Annotated[
        str | None,
        typer.Option("--manifest", metavar="DIGEST", help="The set with this manifest; else the newest."),
    ] = None,
    despite: Annotated[
        str | None,
        typer.Option("--despite", metavar="WHY", help="Why a set is taken that is not within its bounds."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Take a complete set out of the store: as a folder of Parquet or JSON Lines files that other tools open.

    Every unit is compared with its sha256 as it is read. What cannot be written whole is not there at all. Beside the
    rows lie the manifest and a README that says how they were made, how many there are, and for what they are not fit.

    Raises:
        NotFoundError: there is no such set.
        InvalidInput: TO exists and is not empty, or cannot be written.
        GateError: the set is not complete, it is another one than --manifest says, or it has findings without
            --despite.
        CorruptError: a unit is missing or damaged; nothing is left at TO.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.data.exported import export_set
    from raykit.data.sets import closed_set

    found = open_root(root)
    require_store(found)
    why = None if despite is None else words(despite, field="--despite", what="why is it taken?")
    taken = closed_set(found.store, name, manifest=manifest, despite=why)
    with bar("export", quiet=as_json) as tell:
        done = export_set(taken, to, form=form, tell=tell)
    if as_json:
        output.print_json(done.plain())
    else:
        output.print_lines(generatelook.exported(done))


# --- what people say ----------------------------------------------------------------------------------------


def retry(
    name: Set,
    units: Units = None,
    reason: Reason = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let parked units be tried again: all of them, or those of --unit. What is published stays as it is.

    Raises:
        NotFoundError: there is no such set or unit.
        GateError: it has no contract yet.
        InvalidInput: nobody said so, or not why.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.records import Retried
    from raykit.shards.units import unit_id
    from raykit.store.people import People

    found = open_root(root)
    require_store(found)
    read, made = _one(found, name)
    person, why = person_of(by), words(reason, field="--reason", what="what makes it worth another try?")
    parked = [unit for unit in _wanted(made, units) if unit in made.parked]
    events = [
        Retried(request=unit_id(made.digest, unit), after=made.parked[unit], reason=why, person=person)
        for unit in parked
    ]
    if events:
        log = People(found.store, read.experiment, by=person).log
        log.append(lambda entries: events, at=time.time())
    if as_json:
        output.print_json({"set": read.id, "contract": made.digest, "retried": parked})
    else:
        output.print_lines(generatelook.retried(read, parked, units, at_root(root)))


def give_up(
    name: Set,
    units: Units = None,
    reason: Reason = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let all rows of parked units count as failed, so that the set can be closed without them.

    Only a unit that came to nothing is ever given up. The next `raykit generate PLAN` writes its receipt.

    Raises:
        NotFoundError: there is no such set or unit.
        GateError: it has no contract yet, or a unit is not parked.
        InvalidInput: no unit is named, nobody said so, or not why.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.records import GivenUp
    from raykit.store.people import say

    found = open_root(root)
    require_store(found)
    read, made = _one(found, name)
    if not units:
        raise InvalidInput("no unit is named", field="--unit", rule="one or more parked units, by number")
    person, why = person_of(by), words(reason, field="--reason", what="why may its rows count as failed?")
    left = [unit for unit in _wanted(made, units) if unit not in made.given_up]
    _require_parked(read, made, left)
    if left:
        event = GivenUp(name=read.name, contract=made.digest, units=tuple(left), reason=why, person=person)
        say(found.store, read.experiment, event, person=person, at=time.time())
    rows = _rows_of(made, left)
    if as_json:
        output.print_json({"set": read.id, "contract": made.digest, "given_up": left, "rows": rows})
    else:
        output.print_lines(generatelook.gave_up(read, left, rows, at_root(root)))


def _wanted(made: Made, units: list[int] | None) -> list[int]:
    """The units that are meant, in their order, each once; all that are parked, if none is named."""
    if units is None:
        return sorted(made.parked)
    missing = [unit for unit in units if unit >= made.units_total]
    if missing:
        raise NotFoundError(
            f"there is no unit {missing[0]:,}",
            field="--unit",
            value=missing[0],
            rule=f"0 to {made.units_total - 1:,}",
        )
    return sorted(set(units))


def _require_parked(read: SetRead, made: Made, units: list[int]) -> None:
    others = [unit for unit in units if unit not in made.parked]
    if others:
        from raykit.shards.spans import shown

        raise GateError(
            f"{shown(others)} of {read.id} {'is' if len(others) == 1 else 'are'} not parked",
            field="--unit",
            value=others[0],
            rule=f"parked: {shown(made.parked)}" if made.parked else "nothing is parked",
            remedy=f"raykit generate status {read.id}",
        )


def _rows_of(made: Made, units: list[int]) -> int:
    from raykit.shards.units import unit_of

    return sum(unit_of(made.contract, unit).rows for unit in units)
