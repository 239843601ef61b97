"""`raykit search`: a bounded search of registered trials, and how far each is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output, searchlook
from raykit.cli.approving import Approve, Deviation, approving, said_of
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Root,
    Scripted,
    at_plan,
    at_root,
    open_root,
    require_store,
)
from raykit.errors import GateError

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read.search import SearchRead

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.")]
All = Annotated[bool, typer.Option("--all", help="Every row, however many there are.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="So many rows at most.")]
Charts = Annotated[bool, typer.Option("--charts", help="Draw its charts anew, and say where they lie.")]


# --- running ------------------------------------------------------------------------------------------------


def search(
    plan: Plan,
    approve: Approve = None,
    deviation: Deviation = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Run the trials of a plan with [search] on a private local Ray, or go on with them; a search that is over is left
    alone.

    The table is registered before the first trial: hypothesis, space, metric, every row and its worst cost. Each row is
    a run of its own that resumes exactly, and ends in one of six ways; the best is picked, which is only observed.

    SIGTERM, Ctrl-C and `raykit pause` let every row commit at its next update and leave with exit code 4; the same
    command goes on. A search that ran out of money does so after `raykit budget replan` and `raykit resume NAME --by
    NAME`, one whose first rows have failed alike after `raykit resume --repair`. If nothing can be picked, or it is
    cancelled, it ends with exit code 3.

    Raises:
        GateError: the plan has no [search].
        RaykitError: whatever refuses the search, or ended it.
    """
    from raykit.cli.searchrun import run_search
    from raykit.fleet.site import site_of

    with at_plan(plan, root):
        site = site_of(plan, root)
        if site.plan.search is None:
            raise GateError(
                f"{site.name} has no [search]: it is one run, and has no table of trials",
                field="search",
                rule="a plan with a table [search]",
                remedy="raykit launch PLAN",
            )
        run_search(
            site,
            json=as_json,
            approved=approving(approve, by, scripted),
            deviation=said_of(deviation, by),
        )


# --- looking ------------------------------------------------------------------------------------------------


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The search's experiment; all by default.")
    ] = None,
    show_all: All = False,
    limit: Limit = None,
    charts: Charts = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """The registered table of trials: what each row has come to, its cost, the pick, and who is waited for.

    Of a long table the rows at work, the best and the failed ones are shown first: --limit says how many. With --json
    it is all of it.

    Raises:
        NotFoundError: there is no such search, or nothing at the root.
        CorruptError: a log, a record or the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    found = open_root(root)
    require_store(found)
    reads = found.searches() if name is None else [found.search(name)]
    pictures = {read.experiment: _drawn(found, read) for read in reads} if charts else {}
    if as_json:
        plain = [{**read.plain(), "pictures": list(pictures.get(read.experiment, ()))} for read in reads]
        output.print_json(plain if name is None else plain[0])
        return
    at = at_root(root)
    if name is None:
        output.print_lines(searchlook.all_of_them(reads, time.time(), at))
    else:
        most = None if show_all else limit or searchlook.MOST_ROWS
        output.print_lines(searchlook.whole(reads[0], most=most, columns=output.width(), at=at))
    output.print_lines(f"  chart     {found.store.url}/{key}" for keys in pictures.values() for key in keys)


def _drawn(found: ReadRoot, read: SearchRead) -> tuple[str, ...]:
    """The charts of a search, drawn anew and kept in the store: their keys."""
    from raykit.report.search_charts import put_search_pictures

    return tuple(put_search_pictures(found.store, read, say=lambda text: output.print_lines([f"  {text}"])))
