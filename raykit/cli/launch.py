"""`raykit launch`: one run of a plan on a private local Ray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli.approving import Approve, Deviation, Person, approving, said_of
from raykit.cli.launched import run_launch
from raykit.cli.lifting import Repair, end_pause, record_repair, repair_words
from raykit.cli.options import DEFAULT_ROOT, Json, Root, Scripted, at_plan, person_of
from raykit.errors import GateError

if TYPE_CHECKING:
    from raykit.fleet.site import Site

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")]


def launch(
    plan: Plan,
    approve: Approve = None,
    repair: Repair = None,
    deviation: Deviation = None,
    by: Person = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Run a plan on a private local Ray, or go on with it where it was left; a finished plan is left alone.

    SIGTERM and Ctrl-C commit at the next update and leave with exit code 4; the same command goes on. So does
    `raykit pause` from anywhere that sees the store; then `raykit resume` goes on.

    Raises:
        RaykitError: whatever refuses the launch, or ended it.
    """
    from raykit.fleet.site import site_of

    repair = repair_words(repair)
    with at_plan(plan, root):
        site = site_of(plan, root)
        _require_no_search(site)
        if repair is not None:
            record_repair(site, repair, person_of(by))
            end_pause(site, repair, by)
        said = said_of(deviation, by)
        run_launch(site, json=json, approved=approving(approve, by, scripted), deviation=said)


def _require_no_search(site: Site) -> None:
    """Let only a plan be launched that has one run.

    Raises:
        GateError: it is a search: its rows are registered first, and each is a run of its own.
    """
    if site.plan.search is not None:
        raise GateError(
            f"{site.name} is a search of {site.plan.search.rows:,} rows, and a launch is of one run",
            field="search",
            rule="a plan without [search]",
            remedy="raykit search PLAN",
        )
