"""What people decide for good: `raykit cancel` and `raykit approve`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import money as show_money
from raykit.cli import output, setlines
from raykit.cli.accounts import experiment_ledger, known_plan, ledger_of, projection_now
from raykit.cli.following import run_name
from raykit.cli.lifting import repair_option
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Reason,
    Root,
    Scripted,
    again,
    at_root,
    holds_store,
    is_scripted,
    open_root,
    person_of,
    store_line,
    words,
)
from raykit.cli.pausing import known_scope
from raykit.errors import InvalidInput

if TYPE_CHECKING:
    from raykit.budget.book import Book
    from raykit.plan import LockedBase, Plan
    from raykit.read import Root as ReadRoot
    from raykit.read.money import Money
    from raykit.read.search import SearchRead
    from raykit.records import Record
    from raykit.store.base import ObjectStore

COVERS = "its decision, base and start, data, training, metric, thresholds, stop and ceiling, as they are now"
COVERS_NOT = (
    "a restart from scratch, a sealed set, a promotion, a release, the deletion of anything, or another plan"
)


# --- cancel -------------------------------------------------------------------------------------------------


def cancel(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment.")],
    reason: Reason = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """End an experiment for good: its reserves are free again, nothing is deleted. To go on later, pause it instead.

    To say it twice changes nothing; if the first time broke off half-way, it finishes it.

    Raises:
        InvalidInput: no reason or no person.
        NotFoundError: there is no such experiment.
        CorruptError: a log or the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.store import people
    from raykit.store.people import read_acts

    person = person_of(by)
    found = open_root(root)
    whole = f"experiment:{name.removeprefix('experiment:')}"
    experiment = known_scope(found, whole, act="cancel").removeprefix("experiment:")
    why = words(reason, field="--reason", what="the end for good needs a reason")
    said = people.cancel(found.store, experiment, reason=why, person=person, at=time.time())
    cancelled = read_acts(found.store, experiment).cancelled
    assert cancelled is not None
    ended = _end_rows(found, experiment, cancelled.words)
    closed = _close(found.store, experiment, reason=cancelled.reason, person=cancelled.person) or ended
    if as_json:
        record = {"experiment": experiment, "new": said.new or closed, **cancelled.plain()}
        money, read = _money(found, experiment), _search(found, experiment)
        output.print_json({**record, "money": money and money.plain(), "search": read and read.brief()})
        return
    output.print_lines(_cancel_lines(found, experiment, new=said.new, closed=closed, root=root))


def _search(found: ReadRoot, experiment: str) -> SearchRead | None:
    return found.search(experiment) if found.has_search(experiment) else None


def _end_rows(found: ReadRoot, experiment: str, why: str) -> bool:
    """End the rows of a search that nobody drives; one that is driven ends them itself, at their next updates."""
    read = _search(found, experiment)
    if read is None or read.driven:
        return False
    from raykit.store.search import SearchLog, close_rows

    log = SearchLog(found.store, read.registration, by="cancel")
    log.refresh()
    costs = {row.run: row.cost for row in read.rows}
    return bool(close_rows(found.store, log, why=why, costs=costs, at=time.time()))


def _close(store: ObjectStore, experiment: str, *, reason: str, person: str) -> bool:
    """Free what an experiment had set aside; False if that was done before, or if it has no account."""
    from raykit.records import Closed
    from raykit.store.accounts import account_of

    if account_of(store, experiment) is None:
        return False
    event = Closed(experiment=experiment, reason=reason, person=person)
    ledger = ledger_of(store, account_of(store, experiment) or "", by=person)

    def decide(book: Book) -> Record | None:
        allocation = book.allocations.get(experiment)
        return None if allocation is None or allocation.closed else event

    return bool(ledger.decide(decide, at=time.time()))


def _money(found: ReadRoot, experiment: str) -> Any:
    from raykit.read.money import money_of

    return money_of(found.store, experiment, time.time())


def _cancel_lines(found: ReadRoot, experiment: str, *, new: bool, closed: bool, root: str) -> Iterator[str]:
    from raykit.store.people import read_acts

    cancelled = read_acts(found.store, experiment).cancelled
    assert cancelled is not None
    already = "" if new else " already"
    finished = " (what was left half-done is done)" if closed and not new else ""
    yield f"  {experiment} is cancelled{already} by {cancelled.person}: {cancelled.reason}{finished}"
    money, read = _money(found, experiment), _search(found, experiment)
    if read is not None:
        yield f"  {read.summary}; {_spent(money)}; not resumable"
        yield from _ended_by_it(read)
        if read.driven and read.place is not None:
            at_work = f"process {read.place.pid} on {read.place.host}"
            yield f"  {experiment} is driven by {at_work}, which ends every row at its next update"
            yield f"  -> raykit search status {experiment}{at_root(root)}"
        yield from _open_leases(money)
        return
    if money is not None and money.billed:
        spent, back = show_money.full(money.actual, money.unit), show_money.full(money.remaining, money.unit)
        yield f"  {spent} spent, {back} returned; nothing was deleted, nothing can be resumed"
        yield from _open_leases(money)
    else:
        yield "  nothing was deleted, nothing can be resumed"
    for view in found.runs(experiment):
        if view.holder is not None:
            yield f"  {run_name(view)} is at work and ends at its next update.  See: raykit status{at_root(root)}"


def _spent(money: Money | None) -> str:
    """What a cancelled search has cost; what is open goes on being charged until it is measured."""
    if money is None or not money.billed:
        return "not billed"
    back = "all reserves but those of what is open are returned" if money.leases else "reserves returned"
    return f"{output.amount(money.actual, money.unit)} spent, {back}"


def _ended_by_it(read: SearchRead) -> Iterator[str]:
    """Which rows a cancellation has ended: their ends are two of six words, and neither says so."""
    from raykit.records import CANCELLED

    rows = [row for row in read.rows if (row.detail or "").startswith(CANCELLED)]
    begun = sum(row.status == "censored-by-budget" for row in rows)
    if rows:
        yield f"  ended by it: {begun} under way (censored-by-budget), {len(rows) - begun} never-started"


def _open_leases(money: Money | None) -> Iterator[str]:
    if money is None or not money.billed:
        return
    for lease in money.leases:
        worst = show_money.full(lease.worst, money.unit)
        yield f"  {lease.lease} is open: up to {worst} stays charged until it ends"


# --- approve ------------------------------------------------------------------------------------------------

Target = Annotated[
    str, typer.Argument(metavar="NAME|PLAN", help="An experiment of the store, or a plan file.")
]
Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="What it may come to.")]


def approve_plan(
    target: Target,
    amount: Amount,
    reason: Reason = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let one plan, as it stands, come to AMOUNT. It covers nothing else: not a restart, not a promotion.

    Raises:
        InvalidInput: the amount or the person is missing or wrong.
        NotFoundError: there is no such experiment.
        ApprovalError: the amount is above the plan's own ceiling.
        PlanError: the plan file is wrong.
        CorruptError: the ledger or the stored plan is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.budget.acts import approve_plan as approve

    person = person_of(by)
    covers = _amount(amount)
    why = None if reason is None else words(reason, field="--reason", what="an empty reason")
    found = open_root(root)
    store, opened = found.store, not holds_store(found)
    name, digest_of = _planned(store, target, root)
    ledger, _ = experiment_ledger(store, name, by=person)
    by_script = is_scripted(scripted)
    written = ledger.decide(
        lambda book: approve(
            book,
            name,
            covers=covers,
            projection=digest_of(book),
            person=person,
            reason=why,
            scripted=by_script,
        ),
        at=time.time(),
    )
    if as_json:
        output.print_json(
            {
                "scope": "plan",
                "experiment": name,
                "account": ledger.account,
                "covers": covers,
                "person": person,
                "scripted": by_script,
                "projection": digest_of(ledger.book),
                "new": bool(written),
                "new_store": opened,
                "does_not_cover": COVERS_NOT,
            }
        )
        return
    script = " (scripted)" if by_script else ""
    output.print_lines(
        iter(
            [
                f"  approved{again(bool(written))} by {person}{script} for account {ledger.account}",
                f"  covers   {name} {show_money.upto(covers, ledger.book.unit)}: {COVERS}",
                f"  not      {COVERS_NOT}",
                *_goes_on(store, name, target, at_root(root)),
                *store_line(found, opened),
            ]
        )
    )


def _goes_on(store: ObjectStore, name: str, target: str, at: str) -> Iterator[str]:
    """What goes on with a plan that was approved: its run, or once that is trained its synthetic sets."""
    from raykit.cli.lifting import waiting_sets
    from raykit.store.plans import newest_lock, stored_plan

    sets = [] if newest_lock(store, name) is None else waiting_sets(store, stored_plan(store, name))
    if not sets:
        yield f"  continue raykit resume {target}{at}"
    for read in sets:
        yield from setlines.standing(read, at)


def _planned(store: ObjectStore, target: str, root: str) -> tuple[str, Callable[[Book], str]]:
    """The experiment that `target` names, with its budget, and what an approval of it has to name.

    A plan file that was never launched gets its account and lines first.
    """
    if not _is_file(target):
        return target, projection_now(store, target)
    from raykit.fleet.site import make_ready, site_of
    from raykit.fleet.spending import open_spending, projection_of
    from raykit.store.people import read_acts

    site = site_of(Path(target), root)
    acts = read_acts(store, site.name)
    open_spending(site, make_ready(site).lock, site.run_log("reader"), acts)
    return site.name, lambda book: projection_of(site, book)


def _is_file(target: str) -> bool:
    return target.endswith(".toml") or Path(target).is_file()


def _amount(text: str) -> int:
    from raykit.budget.amounts import micros

    covers = micros(text, field="AMOUNT")
    if covers == 0:
        raise InvalidInput("nothing would be approved", field="AMOUNT", value=text, rule="more than 0")
    return covers


def approve_account(
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account.")],
    amount: Amount,
    reason: Reason = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let a whole account come to AMOUNT, over all its experiments. Each plan still needs its own approval.

    Raises:
        InvalidInput: the amount or the person is missing or wrong.
        NotFoundError: there is no such account.
        ApprovalError: more than everything that is planned.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.budget.acts import approve_account as approve

    person = person_of(by)
    covers = _amount(amount)
    why = None if reason is None else words(reason, field="--reason", what="an empty reason")
    ledger = ledger_of(open_root(root).store, account, by=person)
    by_script = is_scripted(scripted)
    written = ledger.decide(
        lambda book: approve(book, covers=covers, person=person, reason=why, scripted=by_script),
        at=time.time(),
    )
    if as_json:
        output.print_json(
            {
                "scope": "account",
                "account": account,
                "covers": covers,
                "person": person,
                "scripted": by_script,
                "new": bool(written),
            }
        )
        return
    script = " (scripted)" if by_script else ""
    output.print_lines(
        iter(
            [
                f"  approved{again(bool(written))} by {person}{script}",
                f"  covers   account {account} {show_money.upto(covers, ledger.book.unit)}, over all its experiments",
                "  not      any plan of it: each needs its own approval",
            ]
        )
    )


def approve_restart(
    target: Target,
    reason: Reason = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let one plan, as it stands, train from update 0 though a trained checkpoint answers to the same decision.

    What it discards, repeats and costs is shown; with --json it is under `facts`.

    Raises:
        InvalidInput: no reason or no person, or the plan does not begin anew beside weights that are paid for.
        NotFoundError: there is no such experiment.
        PlanError: the plan file is wrong.
        ApprovalError: the plan is related to another account.
        CorruptError: what is stored is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.plan import projection
    from raykit.records import RestartApproved
    from raykit.store.people import approve_restart as approve

    person = person_of(by)
    why = words(reason, field="--reason", what="a restart throws trained updates away: say why that is right")
    store = open_root(root).store
    plan, base, facts = _restart(target, root)
    event = RestartApproved(
        projection=projection(plan, ceiling=_ceiling(store, plan), base=base),
        covers=f"training {plan.name} from update 0, as planned now",
        reason=why,
        person=person,
        scripted=is_scripted(scripted),
    )
    said = approve(store, plan.name, event, at=time.time())
    if as_json:
        output.print_json({**event.plain(), "experiment": plan.name, "new": said.new, "facts": dict(facts)})
        return
    script = " (scripted)" if event.scripted else ""
    output.print_lines(
        [
            *output.facts(facts).splitlines(),
            f"  approved{again(said.new)} by {person}{script}: {why}",
            f"  covers   {event.covers}; checkpoints that are there stay where they are",
            "  not      any money (that is an approval of the plan), a sealed set, a promotion, or a changed plan",
            f"  continue raykit launch {target if _is_file(target) else 'PLAN'}{at_root(root)}",
        ]
    )


def approve_harmless(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The experiment.")],
    state: Annotated[
        list[str], typer.Argument(metavar="STATE...", help="What a finding names, such as recipe.calls.")
    ],
    reason: Reason = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Say that state which no checkpoint holds does not matter: no gate and no save names it again.

    The next launch goes by it, and what it had lowered counts as it was before. To say it twice changes nothing.

    Raises:
        InvalidInput: no state, no reason or no person.
        NotFoundError: there is no such experiment.
        CorruptError: the log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.records import Harmless
    from raykit.store.people import say_harmless

    person = person_of(by)
    why = words(reason, field="--reason", what="why it does not matter that a resume loses it")
    names = tuple(dict.fromkeys(words(one, field="STATE", what="no state is named") for one in state))
    store = open_root(root).store
    event = Harmless(names=names, reason=why, person=person)
    said = say_harmless(store, name, event, at=time.time())
    repair = repair_option(store, name, names, person)
    if as_json:
        output.print_json({**event.plain(), "experiment": name, "new": said.new})
        return
    output.print_lines(
        [
            f"  harmless{again(said.new)} for {name}: {', '.join(names)}",
            f"  because  {why} ({person})",
            "  not      anything else that a resume loses; a difference in what is trained counts as before",
            f"  continue raykit resume {name}{repair}{at_root(root)}",
        ]
    )


def _restart(target: str, root: str) -> tuple[Plan, LockedBase | None, tuple[tuple[str, str], ...]]:
    """The plan that `target` names, the weights that it names, and what its restart discards, repeats and costs."""
    from contextlib import ExitStack

    from raykit.fleet.evidence import gather
    from raykit.fleet.site import place, stored_site
    from raykit.read.planfile import read_plan_file
    from raykit.review import restart_facts, review
    from raykit.train.find_recipe import recipe_folder

    with ExitStack() as stack:
        if _is_file(target):
            path = Path(target)
            data, plan = read_plan_file(path)
            site = place(plan, data, recipe_folder(plan.recipe, path), root)
        else:
            known_plan(open_root(root).store, target)  # says what there is, if it is not there
            site = stack.enter_context(stored_site(target, root))
        evidence = gather(site).evidence
        complete = site.run_log("reader").state.completed
    if complete or not evidence.restarts or not evidence.money.billed:
        raise InvalidInput(
            f"{site.name} is complete: nothing of it starts"
            if complete
            else f"{site.name} does not begin anew beside weights that are paid for: there is nothing to approve",
            field="PLAN",
            value=target,
            rule='a paid plan with base.start = "fresh"',
            remedy=f"raykit plan check {target if _is_file(target) else 'PLAN'}",
        )
    found = review(evidence)
    return site.plan, site.base, restart_facts(evidence, found)


def _ceiling(store: ObjectStore, plan: Plan) -> int:
    """The ceiling as the ledger has it, or else the plan's own."""
    from raykit.read.money import Ledgers
    from raykit.read.sizing import ceiling_of

    ledger = Ledgers(store).of(plan.name)
    allocation = None if ledger is None else ledger.book.allocations.get(plan.name)
    return ceiling_of(plan) if allocation is None else allocation.ceiling
