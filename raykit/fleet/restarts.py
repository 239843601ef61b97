"""Finds, for a plan that is about to begin, the runs that have weights for the same decision already."""

from __future__ import annotations

import time
from collections.abc import Iterator

from raykit.budget.amounts import shown
from raykit.budget.book import AUTONOMOUS, Book
from raykit.budget.lines import expected_cost
from raykit.budget.worst import Sizing, worst_case
from raykit.data.members import Membership, compare
from raykit.data.members import load as load_members
from raykit.errors import CorruptError, NotFoundError
from raykit.fleet.site import RUN, Site
from raykit.fleet.spending import projection_of
from raykit.plan import Plan, contract, decision_digest, differences
from raykit.read.sizing import expected_wall_ms, measure, sizing_of, unit_of
from raykit.review.restart import Earlier, Restart, require_approved
from raykit.store.commit import newest_good
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.plans import newest_lock, read_plan
from raykit.train.prepare import Prepared


def require_no_restart(site: Site, ready: Prepared, book: Book) -> None:
    """Let only a plan begin that discards no training, or that a person lets do so.

    Raises:
        ApprovalError: nobody has; the request comes with it.
        CorruptError: what an earlier run has stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    approved = [event.projection for event in read_acts(site.store, site.name).restarts]
    for restart in restarts(site, ready, book):
        require_approved(restart, projection_of(site, book), approved)


def restarts(site: Site, ready: Prepared, book: Book) -> Iterator[Restart]:
    """What a plan that begins anew discards: one restart for each run of its account with weights for its decision.

    Raises:
        CorruptError: what an earlier run has stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    wanted = decision_digest(site.plan)
    sizing = sizing_of(site.store, site.plan, book=book)
    if worst_case(sizing) == 0:
        return  # nothing is paid for: nothing that was paid for is repeated
    for allocation in book.allocations.values():
        if allocation.experiment == site.name or allocation.planned.decision != wanted:
            continue
        found = _earlier(site, allocation.experiment)
        if found is not None:
            yield _restart(site, ready, book, sizing, *found)


def _earlier(site: Site, experiment: str) -> tuple[Earlier, Plan, Membership] | None:
    log = RunLog(site.store, experiment, RUN, by="reader")
    log.refresh()
    locked = newest_lock(site.store, experiment)
    try:
        good = newest_good(site.store, [commit for commit in log.state.commits if commit.update > 0])
    except CorruptError:
        return None  # weights that do not verify are none; `raykit check` says what is wrong with them
    if good is None or locked is None:
        return None
    try:
        plan = read_plan(site.store, experiment, locked.plan)
        members = load_members(site.store, experiment, locked.data)
    except NotFoundError as error:
        raise CorruptError(
            f"{experiment} has trained weights, and what they were trained by is gone: {error}",
            rule="what a restart would discard can be said",
            remedy="raykit check",
        ) from error
    earlier = Earlier(
        experiment=experiment,
        update=good.commit.update,
        updates=plan.run.updates,
        manifest=good.commit.sha256,
        accelerator_s=good.commit.accelerator_s,
    )
    return earlier, plan, members


def _restart(
    site: Site,
    ready: Prepared,
    book: Book,
    sizing: Sizing,
    earlier: Earlier,
    plan: Plan,
    members: Membership,
) -> Restart:
    difference = compare(members, ready.source)
    counts = {} if difference is None else difference.counts
    changed = differences(contract(plan), contract(site.plan))
    wall_ms = expected_wall_ms(site.plan, measure(site.store, earlier.experiment))
    unit = unit_of(site.plan)
    cost = expected_cost(sizing, sizing.wall_ms if wall_ms is None else wall_ms)
    return Restart(
        experiment=site.name,
        earlier=earlier,
        rows_before=members.manifest.rows,
        rows_added=counts.get("added", 0),
        rows_removed=counts.get("missing", 0),
        rows_changed=counts.get("content", 0),
        changed=tuple(f"{field}: {was} -> {now}" for field, was, now in changed),
        repeats=min(earlier.update, site.plan.run.updates),
        updates=site.plan.run.updates,
        time="a time that nobody has measured"
        if wall_ms is None
        else f"{wall_ms / 3_600_000:.2f} h expected",
        cost=f"{shown(cost, unit)} expected, {shown(worst_case(sizing), unit)} at worst",
        below_autonomous=_below_autonomous(book, worst_case(sizing)),
        preserved=True,  # it verified a moment ago, and nothing that this plan writes has one of its keys
    )


def _below_autonomous(book: Book, worst: int) -> bool:
    """Whether all that this account has come to, and this plan at worst, needs no approval of money either."""
    total = book.charged + book.idle_cost(time.time()) + worst
    return book.unit == "usd" and total < AUTONOMOUS
