"""`raykit qc relock`: ask again, with the QC and the code that a plan has now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, By, Json, Root, at_plan, at_root, person_of, words

if TYPE_CHECKING:
    from raykit.fleet.qc.relock import Relocked


def relock(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")],
    deviation: Annotated[
        str | None,
        typer.Option(
            "--deviation", metavar="TEXT", help="Why it is asked anew after results; kept for ever."
        ),
    ] = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Lock a plan anew for the run that it has, without training: `raykit qc run` then examines every checkpoint again.

    For a recipe whose QC part was wrong, a metric that nobody reports, a roster or a limit of workers. What was trained
    has to be what it was. Receipts of before stay in the store; no decision rests on them any more.

    Raises:
        InvalidInput: nobody said so.
        RaykitError: whatever refuses the lock; then nothing is locked.
    """
    from raykit.fleet.qc.relock import relock as locked_anew
    from raykit.fleet.site import site_of

    with at_plan(plan):
        person, said = person_of(by), None
        if deviation is not None:
            said = f"{words(deviation, field='--deviation', what='why is it asked anew?')} ({person})"
        found = locked_anew(
            site_of(plan, root),
            person=person,
            deviation=said,
            say=lambda line: typer.echo(output.clean(line), err=True),
        )
    if as_json:
        output.print_json(_plain(found))
    else:
        output.print_lines(_lines(found, at_root(root)))


def _next(found: Relocked) -> str:
    """What helps now: ending what still holds the checks, or the checks."""
    from raykit.pauses import way_on

    return f"raykit qc run {found.experiment}" if found.paused is None else way_on(found.paused)


def _plain(found: Relocked) -> dict[str, Any]:
    return {
        "experiment": found.experiment,
        "new": found.new,
        "suite": found.suite,
        "was": found.was,
        "changed": {key: list(change) for key, change in found.changed.items()},
        "code": [difference.plain() for difference in found.code],
        "receipts": found.receipts,
        "was_paused": found.was_paused and found.was_paused.pause.plain(),
        "paused": found.paused and found.paused.pause.plain(),
        "next": _next(found),
    }


def _lines(found: Relocked, at: str) -> Iterator[str]:
    name, was, suite = found.experiment, (found.was or "none")[:12], found.suite[:12]
    if not found.new:
        yield f"{name} asks the same of every checkpoint already (suite {suite}); nothing was written."
    elif found.suite == found.was:
        yield f"{name} is locked anew with other limits; the suite is the same ({suite}). Nothing was trained."
    else:
        yield f"{name} asks anew: suite {suite}, no longer {was}. Nothing was trained."
    for key, (before, now) in found.changed.items():
        yield f"  plan     {key}: {before} -> {now}"
    for difference in found.code:
        yield f"  code     {difference.what.removeprefix('code file ')} is not what was trained with"
    if found.code and not found.complete:
        yield "           the run is not complete: a resume of it compares code, as with a changed checkout"
    if found.suite != found.was:
        yield from _before(found)
    if found.paused is not None:
        yield f"  paused   {found.paused.words}"
    yield f"  next     {_next(found)}{at}"


def _before(found: Relocked) -> Iterator[str]:
    """What becomes of the suite before."""
    if found.receipts:
        yield f"  before   {found.receipts} receipts of it stay in the store; no decision rests on them any more"
    if found.was_paused is not None:
        yield f"  before   it is {found.was_paused.words}; that does not hold for the new one"
