"""Running a search from the command line: live while it goes on, and what it came to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from raykit.cli import look, output, searchlook
from raykit.cli.approving import until_approved
from raykit.cli.options import LAUNCH, at_root, open_root
from raykit.cli.progress import display

if TYPE_CHECKING:
    from raykit.fleet.search.outcome import SearchOutcome
    from raykit.fleet.site import Site
    from raykit.fleet.spending import Approving
    from raykit.pauses import InForce
    from raykit.read.search import SearchRead


def run_search(
    site: Site,
    *,
    json: bool,
    approved: Approving | None,
    deviation: str | None = None,
    lifted: InForce | None = None,
) -> None:
    """Run a search, or go on with it, and say what it came to. `lifted` is the pause that was ended just now.

    Raises:
        RaykitError: whatever refuses the search, or ended it.
    """
    from raykit.fleet.search.driver import search

    def run(approved: Approving | None) -> SearchOutcome:
        with display(quiet=json) as shown:
            return search(
                site,
                tell=shown.tell_search,
                say=shown.say,
                approved=approved,
                deviation=deviation,
                name=os.environ.get(LAUNCH),
            )

    outcome = until_approved(run, site, approved, asks=not json)
    _tell(site, outcome, lifted, json=json)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def _tell(site: Site, outcome: SearchOutcome, lifted: InForce | None, *, json: bool) -> None:
    """What the search came to: its table, its pick, its pictures, and the way on."""
    found = open_root(site.root)
    read = found.search(site.name)
    charts = () if outcome.already else _charts(read, site)
    if json:
        lifting = {} if lifted is None else {"was_paused": lifted.pause.plain()}
        output.print_json({**record(read, outcome), "pictures": [*charts, *outcome.pictures], **lifting})
        return
    at = at_root(site.root)
    if outcome.unpicked is not None:
        output.print_lines([f"  {outcome.unpicked}"])
    if outcome.already:
        output.print_lines([f"{site.name} is over already; nothing was written."])
    if outcome.stopped is not None:
        kept = "nothing was deleted, nothing can be resumed" if outcome.cancelled else "nothing is lost"
        output.print_lines([f"  stopped   {outcome.stopped}; {kept}"])
    output.print_lines(searchlook.whole(read, most=searchlook.MOST_ROWS, columns=output.width(), at=at))
    output.print_lines(f"  chart     {found.store.url}/{key}" for key in charts)
    if outcome.pictures:
        folder = outcome.pictures[0].rpartition("/")[0]
        output.print_lines(
            [f"  qc        {look.many(len(outcome.pictures), 'picture')} in {found.store.url}/{folder}"]
        )
    output.print_lines([f"  page      raykit report {site.name}{at}"])


def _charts(read: SearchRead, site: Site) -> tuple[str, ...]:
    from raykit.report.search_charts import put_search_pictures

    return tuple(put_search_pictures(site.store, read, say=lambda text: output.print_lines([f"  {text}"])))


def record(read: SearchRead, outcome: SearchOutcome) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        **read.plain(),
        "already": outcome.already,
        "stopped": outcome.stopped,
        "unpicked": outcome.unpicked,
        "exit_code": outcome.exit_code,
    }
