"""`raykit budget settle`, `charge`, `rate`, `part`, `free`: what people know about money and raykit cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.accounts import account_names, experiment_ledger, ledger_of, projection_now
from raykit.cli.budget import Name
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    How,
    Json,
    Reason,
    Root,
    Scripted,
    again,
    amount_of,
    at_root,
    is_scripted,
    open_root,
    person_of,
    words,
)
from raykit.errors import HeldError, InvalidInput, NotFoundError

if TYPE_CHECKING:
    from raykit.budget.book import Allocation, Book, Lease
    from raykit.records import Place, Record
    from raykit.store.base import ObjectStore
    from raykit.store.ledger import Ledger

Account = Annotated[str | None, typer.Option("--account", metavar="ACCOUNT", help="In this account only.")]
POOLS = ("train", "qc", "generate", "search")


# --- settle, charge -----------------------------------------------------------------------------------------


def settle(
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="The lease whose end nobody knows.")],
    cost: Annotated[str | None, typer.Option("--cost", metavar="AMOUNT", help="What it really cost.")] = None,
    how: How = None,
    account: Account = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Say what a lease really cost: one of unknown outcome, or one whose invoice says something else.

    Raises:
        InvalidInput: the amount, the person or how it is known is missing or wrong.
        NotFoundError: there is no such lease; the message names the open ones.
        HeldError: somebody works under it.
        CorruptError: a ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget.acts import settle_by_hand
    from raykit.budget.amounts import shown

    person = person_of(by)
    if cost is None:
        raise InvalidInput("what did it cost?", field="--cost", rule="an amount; 0 if it cost nothing")
    amount = amount_of(cost, "--cost")
    known = words(how, field="--how", what="how is that known?", remedy='--how "invoice 2026-10"')
    store = open_root(root).store
    ledger = _holding(store, lease, account, by=person)
    _require_ended(store, ledger.book.leases[lease])
    written = ledger.decide(
        lambda book: settle_by_hand(book, lease, cost=amount, how=known, person=person), at=time.time()
    )
    held = ledger.book.leases[lease].reserved
    if as_json:
        output.print_json(
            {
                "lease": lease,
                "account": ledger.account,
                "experiment": held.experiment,
                "line": held.line,
                "cost": amount,
                "new": bool(written),
            }
        )
        return
    was = "" if written else " already"
    print(f"  settled{was}: {lease} cost {shown(amount)} on {held.line} of {held.experiment}")
    _tell_overrun(ledger, held.experiment, root)


def _require_ended(store: ObjectStore, lease: Lease) -> None:
    """A lease that is worked under settles itself: what it will have cost, nobody knows yet."""
    from raykit.store.log import RunLog
    from raykit.store.place import alive

    if not lease.open:
        return
    name, holder = lease.reserved.experiment, lease.reserved.holder
    if holder is not None and alive(holder):
        raise _held(lease, holder)
    log = RunLog(store, name, lease.reserved.run or "main", by="reader")
    log.refresh()
    state = log.state
    launched = state.launched
    if launched is None or launched.launch != lease.reserved.lease.rpartition("-")[0]:
        return
    at_work = alive(launched.place)
    if at_work or (at_work is None and time.time() - state.heard_at < launched.lease_s):
        raise _held(lease, launched.place)


def _held(lease: Lease, place: Place) -> HeldError:
    return HeldError(
        f"{lease.reserved.lease} is worked under: process {place.pid} on {place.host} settles it",
        field="LEASE",
        value=lease.reserved.lease,
        rule="only an end that nobody knows is settled by hand",
        remedy=f"raykit pause {lease.reserved.experiment} --reason ...",
    )


def _tell_overrun(ledger: Ledger, name: str, root: str) -> None:
    overrun = ledger.book.allocations[name].overrun()
    if overrun:
        over = output.amount(overrun, ledger.book.unit)
        print(f"  {name} has overrun by {over}: nothing more starts before a replan")
        print(f'  -> raykit budget replan {name} --reason "..." --by NAME{at_root(root)}')


def _holding(store: ObjectStore, lease: str, account: str | None, *, by: str) -> Ledger:
    """The ledger that has a lease."""
    named = (
        [ledger_of(store, account, by=by, field="--account")]
        if account is not None
        else [ledger_of(store, each, by=by) for each in account_names(store)]
    )
    found = [ledger for ledger in named if lease in ledger.book.leases]
    if len(found) > 1:
        raise InvalidInput(
            f"{lease} is in several accounts",
            field="--account",
            rule=" or ".join(ledger.account for ledger in found),
        )
    if not found:
        leases = [each.reserved.lease for ledger in named for each in ledger.book.open_leases()]
        raise NotFoundError(
            f"there is no lease {lease} in {store.url}",
            field="LEASE",
            value=lease,
            rule=("open: " + ", ".join(leases[:10])) if leases else "none is open",
            remedy="raykit budget show",
        )
    return found[0]


def charge(
    name: Name,
    line: Annotated[str, typer.Argument(metavar="LINE", help="The line that pays.")],
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="What it cost.")],
    how: How = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Charge a fixed cost, storage say, to a line. The same charge in the same words counts once.

    Raises:
        InvalidInput: the amount, the person or how it is known is missing or wrong.
        NotFoundError: the experiment has no budget here, or no such line.
        Refused: a person has to act first: approve, replan.
        Stopped: the line, the plan or the account cannot pay.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget.amounts import shown

    person = person_of(by)
    cost = amount_of(amount, "AMOUNT")
    known = words(how, field="--how", what="how is that known?", remedy='--how "storage, October"')
    store = open_root(root).store
    ledger, _ = experiment_ledger(store, name, by=person)
    written = ledger.decide(_charge(store, name, line, cost, known, person), at=time.time())
    if as_json:
        output.print_json({"experiment": name, "line": line, "cost": cost, "new": bool(written)})
    elif written:
        left = ledger.book.allocations[name].remaining(line)
        print(f"  charged {shown(cost)} to {line} of {name}; {shown(left)} left on it")
    else:
        print(f"  charged already: {known!r}; a second charge says in --how which one it is")


def _charge(
    store: ObjectStore, name: str, line: str, cost: int, how: str, person: str
) -> Callable[[Book], Sequence[Record] | None]:
    """Reserve and settle at once."""
    from raykit.budget.admit import Request, admit
    from raykit.ids import digest_of
    from raykit.records import Settled, Terms

    lease = "charge-" + digest_of([name, line, cost, how])[:16]
    terms = Terms(accelerators=0, rate=0, source=how, time_ms=0, fixed=cost)
    digest_now = projection_now(store, name)

    def decide(book: Book) -> Sequence[Record] | None:
        if lease in book.leases:
            return None
        request = Request(lease=lease, experiment=name, line=line, terms=terms, projection=digest_now(book))
        reserved = admit(book, request, now=time.time())
        settled = Settled(lease=lease, cost=cost, time_ms=0, reason="completed", how=how, person=person)
        return None if reserved is None else [reserved, settled]

    return decide


# --- rate, part, free ---------------------------------------------------------------------------------------


def rate(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="train, qc, generate or search.")],
    amount: Annotated[str, typer.Argument(metavar="RATE", help="For one accelerator and hour.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An experiment of the account.")
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="ACCOUNT", help="The account, instead of NAME.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="TEXT", help="Where the rate is from.")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="DATE", help="The date of the source; today.")
    ] = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Record what an accelerator-hour of a pool costs from now on. Whatever starts or is renewed from then on heeds it,
    also of what is running: beyond the margin it waits for a replan. What is at work goes on as it was reserved.

    Raises:
        InvalidInput: the pool, the rate, the date, the source or the person is missing or wrong.
        NotFoundError: there is no such account or experiment.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget.amounts import shown
    from raykit.records import Rated

    person = person_of(by)
    if pool not in POOLS:
        raise InvalidInput(f"there is no pool {pool}", field="POOL", value=pool, rule=", ".join(POOLS))
    event = Rated(
        pool=pool,
        rate=amount_of(amount, "RATE"),
        source=words(source, field="--source", what="where is the rate from?"),
        on=_date(on),
        person=person,
    )
    store = open_root(root).store
    ledger = _of_account_or_name(store, account, name, by=person)
    if ledger.book.unit != "usd":
        raise InvalidInput(
            f"account {ledger.account} is kept in accelerator-hours: an hour costs an hour",
            field="POOL",
            value=pool,
            rule="an account in US dollars",
        )
    before = ledger.book.rates.get(pool)
    written = ledger.decide(
        lambda book: None if _same_rate(book.rates.get(pool), event) else event, at=time.time()
    )
    late = [each for each in ledger.book.allocations.values() if _beyond(each, pool, event.rate)]
    if as_json:
        output.print_json(
            {
                "account": ledger.account,
                **event.plain(),
                "new": bool(written),
                "replan": sorted(each.experiment for each in late),
            }
        )
        return
    was = "" if before is None or before.rate == event.rate else f"{shown(before.rate)} -> "
    again = "" if written else ", as recorded already"
    print(
        f"  rate  {pool} of {ledger.account}: {was}{shown(event.rate)} an accelerator-hour "
        f"({event.source}, {event.on}){again}"
    )
    for each in late:
        margin = f"{each.margin_permille / 10 - 100:g} %"
        print(
            f"  {each.experiment} was planned with {shown(each.rates[pool])} and a margin of {margin}: "
            "nothing more starts before a replan"
        )
        print(f'  -> raykit budget replan {each.experiment} --reason "..." --by NAME{at_root(root)}')


def _same_rate(known: Any, event: Any) -> bool:
    return known is not None and (known.rate, known.source, known.on) == (event.rate, event.source, event.on)


def _beyond(allocation: Allocation, pool: str, rate: int) -> bool:
    """Whether a plan that pays for the pool has to be decided about again; one that does not bill it goes on."""
    planned = allocation.rates.get(pool, 0)
    return not allocation.closed and 0 < planned * allocation.margin_permille < rate * 1000


def _date(text: str | None) -> str:
    today = datetime.now(UTC).date()
    try:
        found = today if text is None else date.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text} is no date", field="--on", value=text, rule="YYYY-MM-DD") from error
    if found > today:
        raise InvalidInput(f"{text} has not come yet", field="--on", value=text, rule=f"at most {today}")
    return found.isoformat()


def _of_account_or_name(store: ObjectStore, account: str | None, name: str | None, *, by: str) -> Ledger:
    if (account is None) == (name is None):
        raise InvalidInput(
            "which account?" if account is None else "an account and an experiment were both named",
            field="NAME, --account",
            rule="one of the two: " + (", ".join(account_names(store)[:10]) or "no account yet"),
        )
    if account is not None:
        return ledger_of(store, account, by=by, field="--account")
    assert name is not None
    return experiment_ledger(store, name, by=by)[0]


def part(
    name: Name,
    source: Annotated[
        str, typer.Option("--from", metavar="ACCOUNT", help="The account that its work is related to.")
    ],
    target: Annotated[str, typer.Option("--to", metavar="ACCOUNT", help="The account that it gets instead.")],
    reason: Reason = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let an experiment have an account of its own though its work is related to that of another one.

    Raises:
        InvalidInput: the person or the reason is missing, or the accounts are one.
        NotFoundError: there is no account to part it from.
        UnsafeNameError: a name cannot be one.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.ids import safe_name
    from raykit.records import Parted
    from raykit.store.accounts import account_of

    person = person_of(by)
    why = words(reason, field="--reason", what="parting related work from its account needs a reason")
    store = open_root(root).store
    if source == target:
        raise InvalidInput(f"{source} is one account", field="--to", value=target, rule="another account")
    ledger = ledger_of(store, source, by=person, field="--from")
    own = account_of(store, safe_name(name))
    if own not in (None, target):
        raise InvalidInput(
            f"{name} has spent from account {own} and stays with it",
            field="NAME",
            value=name,
            rule=f"--to {own}, or an experiment that was not launched yet",
        )
    event = Parted(
        experiment=name,
        account=safe_name(target),
        reason=why,
        person=person,
        scripted=is_scripted(scripted),
    )
    written = ledger.decide(lambda book: None if (name, target) in book.parted else event, at=time.time())
    if as_json:
        output.print_json({"experiment": name, "from": source, "to": target, "new": bool(written)})
    else:
        print(f"  {name} may have account {target}, parted from {source} by {person}{again(bool(written))}")


def free(
    name: Name,
    how: How = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Say that machines that were held while nobody worked are given back: they stop costing.

    Raises:
        InvalidInput: the person, or how that is known, is missing.
        NotFoundError: the experiment has no budget here.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget.amounts import time_cost
    from raykit.records import Freed

    person = person_of(by)
    known = words(how, field="--how", what="how is that known?", remedy='--how "terminated at 15:40"')
    store = open_root(root).store
    ledger, _ = experiment_ledger(store, name, by=person)
    now = time.time()

    def decide(book: Book) -> list[Record]:
        return [
            Freed(
                experiment=name,
                pool=pool,
                cost=time_cost(int(max(0.0, now - since) * 1000), held.accelerators, held.rate),
                how=f"{known} ({person})"[:2000],
            )
            for (experiment, pool), (held, since) in book.held.items()
            if experiment == name
        ]

    freed = [event for event in ledger.decide(decide, at=now) if isinstance(event, Freed)]
    if as_json:
        output.print_json(
            {"experiment": name, "freed": [{"pool": event.pool, "cost": event.cost} for event in freed]}
        )
        return
    for event in freed:
        print(f"  freed  {event.pool} of {name}: {output.amount(event.cost)} while nobody worked")
    if not freed:
        print(f"  nothing of {name} is held")
    _tell_overrun(ledger, name, root)
