"""Running a launch from the command line: live while it goes on, and what it came to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from raykit.cli import output, setlines
from raykit.cli.approving import until_approved
from raykit.cli.lifting import waiting_sets, ways_on
from raykit.cli.options import LAUNCH, at_root
from raykit.cli.progress import display

if TYPE_CHECKING:
    from raykit.fleet.outcome import Outcome
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving
    from raykit.pauses import InForce


def run_launch(
    site: Site,
    *,
    json: bool,
    approved: Approving | None,
    deviation: str | None = None,
    lifted: InForce | None = None,
) -> None:
    """Run a plan, or go on with it, say what it came to, and leave with the exit code of the run.

    `lifted` is the pause that was ended just now.

    Raises:
        RaykitError: whatever refuses the launch, or ended it.
    """
    from raykit.fleet.supervisor import launch

    said: set[str] = set()

    def run(approved: Approving | None) -> Outcome:
        with display(quiet=json) as shown:

            def say_once(line: str) -> None:
                if line not in said:
                    said.add(line)
                    shown.say(line)

            return launch(
                site,
                tell=shown.tell,
                say=say_once,
                approved=approved,
                deviation=deviation,
                name=os.environ.get(LAUNCH),
            )

    outcome = until_approved(run, site, approved, asks=not json)
    if json:
        lifting = {} if lifted is None else {"was_paused": lifted.pause.plain()}
        output.print_json({**_record(outcome), **lifting})
    else:
        typer.echo(_text(outcome, site, lifted))
        for each in waiting_sets(site.store, site.plan) if outcome.already else ():
            output.print_lines(setlines.standing(each, at_root(site.root)))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _record(outcome: Outcome) -> dict[str, object]:
    return {
        "experiment": outcome.experiment,
        "run": outcome.run,
        "reason": outcome.reason,
        "cause": outcome.cause,
        "update": outcome.update,
        "already": outcome.already,
        "detail": outcome.detail,
        "remedy": outcome.remedy,
        "class": outcome.exactness,
        "cancelled": outcome.cancelled,
        "ratio": outcome.ratio,
        "curves": list(outcome.curves),
        "qc": outcome.qc and {**outcome.qc.counts(), "complete": outcome.qc.backlog.complete},
        "qc_pictures": list(outcome.pictures),
        "cost_micros": outcome.cost,
        "exit_code": outcome.exit_code,
    }


GATE_FAILED = " gate failed: "
"""So a failed gate is told: nothing full starts again before a repair is recorded."""


def _text(outcome: Outcome, site: Site, lifted: InForce | None = None) -> str:
    at = at_root(site.root)
    name, update = outcome.experiment, output.count(outcome.update)
    if outcome.already:
        word = "complete" if _is_whole(outcome) else "trained"
        wrote = "nothing was written" if lifted is None else "its pause is over, and nothing else was written"
        done = f"{name} is already {word}, at update {update}; {wrote}."
        return f"{done}{_qc(outcome, site)}\n  see      raykit show {name}{at}"
    pictures = "".join(f"\n  curves   {site.store.url}/{key}" for key in outcome.curves)
    match outcome.reason:
        case "completed":
            ratio = "" if outcome.ratio is None else f", ratio {outcome.ratio:.3f} (no skill 1.000)"
            early = f" ({outcome.detail})" if outcome.detail else ""
            head = f"{name} is {'complete' if _is_whole(outcome) else 'trained'} at update {update}{early}{ratio}."
            head += "" if outcome.exactness is None else f"\n  class    {outcome.exactness}"
            tail = f"\n  next     raykit show {name}{at}   raykit history {name}{at}   raykit check{at}"
        case "paused" | "preempted" if outcome.cancelled:
            head = (
                f"{name} ended at update {update} ({outcome.detail or outcome.reason}); "
                "nothing was deleted, nothing can be resumed."
            )
            tail = f"\n  look     raykit show {name}{at}"
        case "paused" if outcome.cause == "ceiling":
            head = f"{name} is paused at update {update}: {outcome.detail}; nothing is lost."
            tail = (
                f"\n  why      raykit budget show {name}{at}"
                f"\n  continue raykit budget replan {name}{at} --reason ... --by NAME   then   raykit resume {name}{at}"
            )
        case "paused" if outcome.cause == "qc":
            head = f"{name} is paused at update {update}: {outcome.detail}; nothing is lost."
            tail = (
                f"\n  look     raykit qc status {name}{at}   raykit report {name}{at}"
                f'\n  continue raykit resume {name} --repair "what was decided, and why" --by NAME{at}'
            )
        case "failed" if outcome.cause == "qc":
            head = f"{name} ended at update {update}: {(outcome.detail or '').removeprefix('gate: ')}"
            tail = (
                f"\n  look     raykit qc status {name}{at}   raykit report {name}{at}"
                f'\n  continue raykit resume {name} --repair "what you changed" --by NAME{at}'
            )
        case "paused" | "preempted":
            head = f"{name} stopped at update {update} ({outcome.detail or outcome.reason}); nothing is lost."
            # of a job its client says it, or whoever asks: here the root is as the nodes name it
            ways = () if LAUNCH in os.environ else ways_on(site)
            tail = "".join(f"\n  continue {command}" for command in ways)
        case _:
            head = f"{name} {outcome.reason} at update {update}: {outcome.detail or 'see the log'}"
            repair = ' --repair "what you changed" --by NAME' if GATE_FAILED in (outcome.detail or "") else ""
            tail = (
                (f"\n  pass     {outcome.remedy}" if outcome.remedy else "")
                + f"\n  look     raykit logs {name}{at}"
                + f"\n  continue raykit launch PLAN{repair}{at} after a fix of recipe or plan; "
                + f"unchanged: raykit resume {name}{repair}{at}"
            )
    return head + _health(outcome, site) + _cost(outcome, site) + pictures + _qc(outcome, site) + tail


def _health(outcome: Outcome, site: Site) -> str:
    """What is wrong with its rows or its newest checkpoint, whatever the end was; nothing where all is well."""
    import raykit
    from raykit.errors import RaykitError

    try:
        figures = raykit.open(site.store).run(f"{outcome.experiment}/{outcome.run}").figures
    except RaykitError:
        return ""  # what cannot be read now is said by `status`
    if figures.health in ("ok", "unknown", "silent"):
        return ""
    return f"\n  health   {figures.health}: {output.clean(figures.health_detail or '')}"


def _is_whole(outcome: Outcome) -> bool:
    """Nothing of its QC is open or waits for a review: until then a run is trained, and not complete."""
    return outcome.qc is None or outcome.qc.backlog.complete


def _qc(outcome: Outcome, site: Site) -> str:
    """How far the examinations are, where their pictures lie, and what is to be done."""
    if outcome.qc is None:
        return ""
    from raykit.cli.qclook import counted, notes
    from raykit.pauses import way_on as ends
    from raykit.qc.backlog import way_on

    sheets = [key for key in outcome.pictures if key.endswith("sheet.png")]
    sheet = "".join(f"\n  sheet    {site.store.url}/{key}" for key in sheets)
    held = outcome.qc.pause
    suite = held is not None and held.pause.scope.startswith("contract:")
    command = ends(held) if held is not None else way_on(outcome.qc.backlog, outcome.experiment)
    if held is not None and outcome.reason == "paused" and not suite:
        command = None  # the same pause holds the run, and what ends it is said there
    beside = "".join(f"\n         {line.rstrip()}" for line in notes(outcome.qc))
    first = "" if command is None else f"\n  then     {command}{at_root(site.root)}"
    why = "" if held is None else f"\n           {output.clean(held.words)}"
    if suite:  # its code is frozen
        mended = f'raykit qc relock PLAN --deviation "what you changed" --by NAME{at_root(site.root)}'
        first += f"\n  or       {mended}   once the recipe's own QC code is mended"
    return f"\n  qc       {counted(outcome.qc)}{why}{beside}{sheet}{first}"


def _cost(outcome: Outcome, site: Site) -> str:
    if not outcome.cost:
        return ""
    from raykit.read.sizing import unit_of

    spent = output.amount(outcome.cost, unit_of(site.plan))
    show = f"raykit budget show {outcome.experiment}{at_root(site.root)}"
    return f"\n  cost     {spent} for this launch; all of it: {show}"
