"""`raykit budget show` and `replan`: how the money stands, and moving it between lines."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import money as show_money
from raykit.cli import output, setlines
from raykit.cli.accounts import account_names, experiment_ledger, known_plan, no_budget
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Reason,
    Root,
    Scripted,
    amount_of,
    at_root,
    is_scripted,
    open_root,
    person_of,
    words,
)
from raykit.errors import InvalidInput, ReplanError

if TYPE_CHECKING:
    from raykit.budget.book import Allocation, Book
    from raykit.budget.worst import Sizing
    from raykit.plan import Plan
    from raykit.read import Root as ReadRoot
    from raykit.read.setview import SetRead
    from raykit.records import Line, Record
    from raykit.store.base import ObjectStore
    from raykit.store.ledger import Ledger

Name = Annotated[str, typer.Argument(metavar="NAME", help="The experiment.")]
MOVE = re.compile(r"(?P<source>[^:=]+):(?P<target>[^:=]+)=(?P<amount>[^:=]+)")


# --- show ---------------------------------------------------------------------------------------------------


def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|ACCOUNT]", help="An experiment or an account; all accounts."),
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """What is planned, spent, reserved and left, line by line; what nobody knows, and what waits for a person.

    Raises:
        NotFoundError: nothing of that name has a budget.
        UnsafeNameError: NAME cannot be a name.
        CorruptError: a ledger, a log or a history is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.accounts import account_of

    found = open_root(root)
    if name is None:
        _show_all(found, root, as_json=as_json)
    elif account_of(found.store, name) is None and name in account_names(found.store):
        account = next(each for each in found.accounts() if each.account == name)
        if as_json:
            output.print_json(account.plain())
        else:
            output.print_lines(show_money.account_lines(account, columns=output.width(), at=at_root(root)))
    else:
        if account_of(found.store, name) is None:
            raise no_budget(found.store, name)
        money = found.money(name)
        if as_json:
            output.print_json(money.plain())
        else:
            output.print_lines(
                show_money.budget_lines(
                    money, updates=_updates(found, name), columns=output.width(), at=at_root(root)
                )
            )


def _updates(found: ReadRoot, name: str) -> tuple[int, int | None] | None:
    try:
        view = found.run(name)
    except InvalidInput:  # no run yet, or several
        return None
    return view.update, view.updates


def _show_all(found: ReadRoot, root: str, *, as_json: bool) -> None:
    accounts = found.accounts()
    if as_json:
        output.print_json({"root": found.store.url, "accounts": [each.plain() for each in accounts]})
        return
    if not accounts:
        print(f"no account in {found.store.url}: the first launch of a plan opens one")
    for n, account in enumerate(accounts):
        output.print_lines(iter([""] if n else []))
        output.print_lines(show_money.account_lines(account, columns=output.width(), at=at_root(root)))


# --- replan -------------------------------------------------------------------------------------------------


def replan(
    name: Name,
    ceiling: Annotated[
        str | None, typer.Option("--ceiling", metavar="AMOUNT", help="The plan's new ceiling.")
    ] = None,
    move: Annotated[
        list[str] | None,
        typer.Option("--move", metavar="FROM:TO=AMOUNT", help="Move money between lines; again for more."),
    ] = None,
    reason: Reason = None,
    by: By = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Move money between the lines of a budget, or its ceiling. Without --move: as the rest of the run now needs.

    Raises:
        InvalidInput: an amount, a move, a reason or a person is missing or wrong.
        NotFoundError: the experiment has no budget here.
        ReplanError: the ceiling does not reach, or a line would lie below what is spent.
        CorruptError: the ledger or the run is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget import acts
    from raykit.budget.lines import proposal
    from raykit.cli.lifting import resume_command, waiting_sets

    person = person_of(by)
    store = open_root(root).store
    ledger, seen = experiment_ledger(store, name, by=person)
    seen = seen.copy()
    moves = [_move(text) for text in move or ()]
    new_ceiling = seen.ceiling if ceiling is None else amount_of(ceiling, "--ceiling")
    plan = known_plan(store, name)
    sizing = _sizing(store, plan, ledger.book, new_ceiling)
    lines: Sequence[Line]
    if moves or (ceiling is not None and sizing is None):
        lines = acts.moved(seen, moves, ceiling=new_ceiling)
    elif sizing is not None:
        lines = proposal(seen, sizing, ceiling=new_ceiling, unit=ledger.book.unit)
    else:
        raise _needs_moves(name)
    rates = {} if sizing is None else {"train": sizing.rate}
    why = _reason(reason)
    trial = acts.replan(ledger.book, name, lines, ceiling=new_ceiling, rates=rates, reason=why, person=person)
    if trial is not None:
        _confirm(seen, lines, sizing, yes=yes, quiet=as_json)

    def decide(book: Book) -> Record | None:
        now = acts.allocation_of(book, name)
        if (now.ceiling, now.lines, now.rates) != (seen.ceiling, seen.lines, seen.rates):
            raise ReplanError(
                f"the budget of {name} was moved meanwhile",
                remedy=f"raykit budget show {name}{at_root(root)}",
            )
        return acts.replan(
            book,
            name,
            lines,
            ceiling=new_ceiling,
            rates=rates,
            reason=why,
            person=person,
            scripted=is_scripted(scripted),
        )

    written = ledger.decide(decide, at=time.time())
    sizing = _sizing(store, plan, ledger.book, new_ceiling)
    sets = waiting_sets(store, plan)
    # Of a run that is trained nothing goes on but its sets.
    short = None if sets else _short(ledger.book.allocations[name], sizing, _next_trial(store, plan))
    on = f"{resume_command(store, plan)}{at_root(root)}"
    _tell_replan(ledger, name, seen, short, on, sets, new=bool(written), root=root, as_json=as_json)


def _next_trial(store: ObjectStore, plan: Plan) -> str | None:
    """The trial of a search that goes on next: each has productive time of its own. None of a plain run."""
    if plan.search is None:
        return None
    from raykit.fleet.search.going import next_row
    from raykit.store.search import read_search

    state = read_search(store, plan.name)
    row = None if state is None else next_row(state)
    return None if row is None else row.run


def _short(allocation: Allocation, sizing: Sizing | None, trial: str | None) -> str | None:
    """Why another attempt would still not be paid for; None if it would."""
    from raykit.budget.amounts import worst_of
    from raykit.budget.lines import TRAIN, next_attempt
    from raykit.errors import BudgetError

    if sizing is None:
        return "the ceiling pays for no work yet"
    try:
        worst = worst_of(next_attempt(allocation, sizing, trial))
    except BudgetError as error:
        return error.message
    return (
        None
        if worst <= allocation.remaining(TRAIN)
        else "the line train does not pay for another attempt yet"
    )


def _sizing(store: ObjectStore, plan: Any, book: Book, ceiling: int) -> Sizing | None:
    """What the rest of the run is worked out from; None where even a guess does not fit under the ceiling."""
    from raykit.errors import BudgetError
    from raykit.read.sizing import sizing_of
    from raykit.store.plans import newest_stored_lock

    try:
        lock = newest_stored_lock(store, plan.name)
        base = None if lock is None else lock.base
        return sizing_of(store, plan, book=book, base=base, ceiling=ceiling)
    except BudgetError:
        return None


def _needs_moves(name: str) -> InvalidInput:
    return InvalidInput(
        f"nothing of {name} has been measured, and its ceiling pays for no guess",
        field="--move",
        rule="--move FROM:TO=AMOUNT, or --ceiling AMOUNT",
        remedy=f"raykit budget show {name}",
    )


def _reason(reason: str | None) -> str:
    """The reason that was given; asked for at a terminal."""
    if reason is None and sys.stdin.isatty() and sys.stderr.isatty():
        reason = typer.prompt("  Why (kept for ever)", err=True)
    return words(reason, field="--reason", what="a replan needs a reason")


def _confirm(
    seen: Allocation, lines: Sequence[Line], sizing: Sizing | None, *, yes: bool, quiet: bool
) -> None:
    """Show what moves, and let a person at a terminal type the amount.

    Raises:
        InvalidInput: another amount was typed.
    """
    from raykit.budget.amounts import shown

    if quiet:
        return
    output.print_lines(show_money.moved_lines(seen.lines, lines, columns=output.width()))
    was = seen.rates.get("train")
    if sizing is not None and was is not None and was != sizing.rate:
        print(f"  rate  train {shown(was)} -> {shown(sizing.rate)} an accelerator-hour ({sizing.source})")
    changes = [
        line.planned - (seen.lines[line.line].planned if line.line in seen.lines else 0) for line in lines
    ]
    amount = max(sum(c for c in changes if c > 0), -sum(c for c in changes if c < 0))
    if yes or amount == 0 or not sys.stdin.isatty():
        return
    answer = typer.prompt(f"  Type the amount that moves to approve ({show_money.typed(amount)})", err=True)
    if amount_of(answer, "the amount") != amount:
        raise InvalidInput(
            "another amount was typed: nothing was moved", field="the amount", rule=show_money.typed(amount)
        )


def _tell_replan(
    ledger: Ledger,
    name: str,
    seen: Allocation,
    short: str | None,
    on: str,
    sets: Sequence[SetRead],
    *,
    new: bool,
    root: str,
    as_json: bool,
) -> None:
    number = ledger.entries[-1].n
    if as_json:
        allocation = ledger.book.allocations[name]
        lines = {line: record.planned for line, record in allocation.lines.items()}
        output.print_json(
            {
                "experiment": name,
                "new": new,
                "ceiling": allocation.ceiling,
                "lines": lines,
                "rates": dict(allocation.rates),
                "short": short,
            }
        )
        return
    if not new:
        print(f"  the budget of {name} is so already; nothing was written")
        return
    if sets:
        print(f"  replanned (entry {number})")
        output.print_lines(text for read in sets for text in setlines.standing(read, at_root(root)))
    elif short is None:
        print(f"  replanned (entry {number}).  Continue: {on}")
    else:
        print(f"  replanned (entry {number}), and not enough: {short}")
        print(f"  -> raykit budget replan {name} --ceiling HIGHER --reason ... --by NAME{at_root(root)}")
    raised = ledger.book.allocations[name].ceiling != seen.ceiling
    if raised and any(experiment == name for experiment, _ in ledger.book.approvals):
        amount = show_money.typed(ledger.book.allocations[name].ceiling)
        print(
            "  the ceiling is part of what was approved, so that approval does not cover this plan any more"
        )
        print(f"  -> raykit approve plan {name} {amount} --by NAME{at_root(root)}")


def _move(text: str) -> tuple[str, str, int]:
    found = MOVE.fullmatch(text)
    if found is None:
        raise InvalidInput(
            f"{text} is no move",
            field="--move",
            value=text,
            rule="FROM:TO=AMOUNT, such as recovery:train=22.31",
        )
    return found["source"], found["target"], amount_of(found["amount"], "--move")
