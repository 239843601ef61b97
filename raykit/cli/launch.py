"""`raykit launch` and `raykit resume`."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, Json, Root
from raykit.cli.progress import display
from raykit.errors import ApprovalError, PlanError
from raykit.records import EXACTNESS

if TYPE_CHECKING:
    from raykit.fleet.site import Site
    from raykit.fleet.supervisor import Outcome

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")]


def launch(plan: Plan, root: Root = DEFAULT_ROOT, json: Json = False) -> None:
    """Run a plan on a private local Ray, or go on with it where it was left; a finished plan is left alone.

    SIGTERM and Ctrl-C commit at the next update and leave with exit code 4; the same command goes on.

    Raises:
        RaykitError: whatever refuses the launch, or ended it.
    """
    from raykit.fleet.site import site_of

    _run(site_of(plan, root), json=json)


def resume(
    target: Annotated[
        str, typer.Argument(metavar="NAME|PLAN", help="An experiment of the store, or a plan file.")
    ],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="CLASS", help="Allow this exactness class, as an amendment.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why that is good enough; kept for ever.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", envvar="RAYKIT_PERSON", help="The person who allows it.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Go on with a run. By name: with the plan and code that are frozen in the store, whatever the checkout says.

    With `--as`, a named person allows this run to go on with exactly the differences that there are now; the
    amendment is recorded and printed in every report.

    Raises:
        PlanError: an unknown class.
        ApprovalError: an amendment without a person or a reason.
        RaykitError: whatever refuses the launch, or ended it.
    """
    from raykit.fleet.claim import amend
    from raykit.fleet.site import site_of, stored_site

    with ExitStack() as stack:
        is_file = target.endswith(".toml") or Path(target).is_file()
        site = site_of(Path(target), root) if is_file else stack.enter_context(stored_site(target, root))
        if as_ is not None:
            if as_ not in EXACTNESS:
                raise PlanError(f"{as_} is not an exactness class", field="--as", rule=" | ".join(EXACTNESS))
            if not reason or not by:
                raise ApprovalError(
                    "an amendment needs a person and a reason",
                    field="--by, --reason",
                    remedy=f'raykit resume {target} --as {as_} --by NAME --reason "..."',
                )
            for difference in amend(site, allows=as_, reason=reason, person=by):
                typer.echo(
                    f"  allowed by {by}: {difference.what}: {difference.was} -> {difference.now}", err=True
                )
        _run(site, json=json)


def _run(site: Site, *, json: bool) -> None:
    from raykit.fleet.supervisor import launch as run

    with display(quiet=json) as shown:
        outcome = run(site, tell=shown.tell, say=shown.say)
    if json:
        output.print_json(_record(outcome))
    else:
        typer.echo(_text(outcome, site))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _record(outcome: Outcome) -> dict[str, object]:
    return {
        "experiment": outcome.experiment,
        "run": outcome.run,
        "reason": outcome.reason,
        "update": outcome.update,
        "already": outcome.already,
        "detail": outcome.detail,
        "ratio": outcome.ratio,
        "curves": list(outcome.curves),
        "exit_code": outcome.exit_code,
    }


def _text(outcome: Outcome, site: Site) -> str:
    at = (
        ""
        if site.root in (DEFAULT_ROOT, os.environ.get("RAYKIT_ROOT"))
        else f" --root {shlex.quote(site.root)}"
    )
    name, update = outcome.experiment, output.count(outcome.update)
    if outcome.already:
        return f"{name} is already complete, at update {update}; nothing was written.\n  see  raykit show {name}{at}"
    pictures = "".join(f"\n  curves   {site.store.url}/{key}" for key in outcome.curves)
    match outcome.reason:
        case "completed":
            ratio = "" if outcome.ratio is None else f", ratio {outcome.ratio:.3f} (no skill 1.000)"
            early = f" ({outcome.detail})" if outcome.detail else ""
            head = f"{name} is complete at update {update}{early}{ratio}."
            tail = f"\n  next     raykit show {name}{at}   raykit history {name}{at}   raykit check{at}"
        case "paused" | "preempted":
            head = f"{name} stopped at update {update} ({outcome.detail or outcome.reason}); nothing is lost."
            tail = f"\n  continue raykit resume {name}{at}"
        case _:
            head = f"{name} {outcome.reason} at update {update}: {outcome.detail or 'see the log'}"
            tail = (
                f"\n  look     raykit logs {name}{at}"
                f"\n  continue raykit launch PLAN{at} after a fix; unchanged: raykit resume {name}{at}"
            )
    return head + pictures + tail
