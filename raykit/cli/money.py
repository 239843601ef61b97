"""How money is shown: text made from what `raykit.read` gives. Pure; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from raykit.budget.amounts import shown
from raykit.cli import output
from raykit.records import MICRO, Unit

if TYPE_CHECKING:
    from raykit.read.money import AccountMoney, ApprovalMoney, HeldMoney, Money, RateMoney
    from raykit.records import Line

NONE = "-"
KEPT = {"confirmation": "kept: one run to confirm", "recovery": "kept: what goes wrong"}
SETTLE = 'raykit budget settle {lease} --cost AMOUNT --how "..." --by NAME'
MOST_NAMES = 3
"""So many leases are named."""


def typed(amount: int) -> str:
    """An amount as people type it: `1449.5`."""
    return shown(amount).replace(",", "").removesuffix(".00")


def full(amount: int, unit: Unit) -> str:
    """`900.00 USD`, `20.00 accelerator-hours`."""
    return f"{shown(amount)} {'USD' if unit == 'usd' else unit}"


def limit(amount: int, unit: Unit) -> str:
    """`below 900.00 USD`; a granted hour may be used to the last."""
    return f"{'below' if unit == 'usd' else 'at most'} {full(amount, unit)}"


def upto(amount: int, unit: Unit) -> str:
    """`up to 900.00 USD`: a ceiling that was approved."""
    return f"up to {full(amount, unit)}"


def spent(money: Money | None) -> str:
    """What a run has cost, for a table: `$112/900`, `not billed`, `-`."""
    if money is None:
        return NONE
    return output.money_of(money.actual, money.ceiling, money.unit) if money.billed else "not billed"


# --- tables -------------------------------------------------------------------------------------------------

LINES = ("line", "planned", "actual", "reserved", "remaining", "")
AMOUNTS = ("planned", "actual", "reserved", "remaining", "ceiling")


def _decimals(largest: int) -> int:
    """As many decimals as tell the amounts of an account apart; all of them are in --json."""
    return 2 if largest >= 10 * MICRO else 4 if largest >= MICRO // 10 else 6


def _cell(amount: int, decimals: int) -> str:
    return NONE if amount == 0 else f"{amount / MICRO:,.{decimals}f}"


def budget_lines(
    money: Money,
    *,
    updates: tuple[int, int | None] | None = None,
    columns: int | None = None,
    at: str = "",
    waiting: bool = True,
) -> Iterator[str]:
    """The budget of one experiment, whole; with `waiting`, what it waits for too."""
    yield from _head(money, columns)
    yield from _line_table(money, updates, columns)
    for name, text in _money_facts(money):
        yield from output.wrapped(f"{name:<9}  {text}", columns, hang=11)
    if waiting:
        yield from pending(money, at)


def _head(money: Money, columns: int | None) -> Iterator[str]:
    parts = [f"account {money.account}", f"ceiling {limit(money.ceiling, money.unit)}"]
    if not money.billed:
        parts.append("not billed")
    if money.closed:
        parts.append("cancelled")
    text = f" {output.DOT} ".join([money.experiment, *parts])
    yield from output.wrapped(text, columns, indent="")


def _line_table(money: Money, updates: tuple[int, int | None] | None, columns: int | None) -> Iterator[str]:
    decimals = _decimals(money.ceiling)
    rows = []
    for line in money.lines:
        note = KEPT.get(line.purpose, "")
        if line.line == "train" and updates is not None:
            done, whole = updates
            note = f"{output.count(done)}" + (f" of {output.count(whole)}" if whole else "") + " updates"
        if line.remaining < 0:
            note = "overrun" if line.planned else "no line plans for it"
        amounts = (line.planned, line.actual, line.reserved, line.remaining)
        rows.append((line.line, *(_cell(amount, decimals) for amount in amounts), note))
    totals = (money.planned, money.actual, money.reserved, money.remaining)
    rows.append(("total", *(_cell(amount, decimals) for amount in totals), ""))
    text = output.fitting(
        LINES, rows, right=AMOUNTS, drop=("", "planned"), columns=None if columns is None else columns - 2
    )
    yield from (f"  {line}" for line in text.split("\n"))


def _money_facts(money: Money) -> Iterator[tuple[str, str]]:
    decimals = _decimals(money.ceiling)
    guess = ", a guess" if money.uncertain else ""
    if money.billed:
        projected, expected = money.projected / MICRO, money.expected / MICRO
        planned = f"planned {expected:,.{decimals}f}{guess}"
        yield "projected", f"{projected:,.{decimals}f} at the end ({planned}){money.leaves_out}"
    planned = f" of {output.duration(money.expected_ms / 1000)} planned" if money.expected_ms else ""
    yield (
        "time",
        f"{output.duration(money.held_ms / 1000)}{planned}, {_many(money.attempts, 'attempt')}, "
        f"{money.accelerator_ms / 3_600_000:,.4g} accelerator-hours",
    )
    yield "idle", f"{money.idle / MICRO:,.{decimals}f}, no work done"
    yield "stops", f"{money.stop_rule}"
    yield from (("rate", _rate(rate)) for rate in money.rates)
    if money.account_charged > money.actual + money.reserved:
        whole = output.amount(money.account_charged, money.unit)
        yield "account", f"{whole} settled and reserved by all its experiments"
    yield from approvals(money.approvals, money)
    yield "unknown", _many(len(money.unknown), "outcome") if money.unknown else "no outcome"


def approvals(found: Sequence[ApprovalMoney], money: Money | None = None) -> Iterator[tuple[str, str]]:
    """Who has approved what, the newest of each scope and experiment."""
    newest = {(each.scope, each.experiment): each for each in found}
    for each in newest.values():
        what = "the account" if each.scope == "account" else each.experiment
        ended = "; the plan has changed since: not covered" if each.current is False else ""
        scripted = ", scripted" if each.scripted else ""
        yield (
            "approved",
            f"{shown(each.covers)} for {what} by {each.person} (entry {each.number}{scripted}){ended}",
        )
    if not newest and money is not None and money.unit == "usd" and money.billed:
        yield "approved", f"nothing; below {shown(money.autonomous)} none is needed"


def _rate(rate: RateMoney) -> str:
    where = " ".join(part for part in (rate.source, rate.on) if part)
    was = "" if rate.planned in (None, rate.rate) else f", planned with {shown(rate.planned or 0)}"
    return f"pool {rate.pool}: {shown(rate.rate)} an accelerator-hour{f' ({where})' if where else ''}{was}"


def _many(count: int, what: str) -> str:
    return f"{output.count(count)} {what}{'' if count == 1 else 's'}"


def account_lines(account: AccountMoney, *, columns: int | None = None, at: str = "") -> Iterator[str]:
    """A whole account."""
    charged = account.settled + account.reserved
    figure = "no figure approved" if account.figure is None else limit(account.figure, account.unit)
    parts = (f"account {account.account}", figure, f"{output.amount(charged, account.unit)} charged")
    yield from output.wrapped(f" {output.DOT} ".join(parts), columns, indent="")
    largest = max((money.ceiling for money in account.experiments), default=0)
    decimals = _decimals(largest)
    rows = [
        (
            money.experiment,
            *(
                _cell(amount, decimals)
                for amount in (money.ceiling, money.actual, money.reserved, money.remaining)
            ),
            "cancelled" if money.closed else "" if money.billed else "not billed",
        )
        for money in account.experiments
    ]
    headers = ("experiment", "ceiling", "actual", "reserved", "remaining", "")
    inner = None if columns is None else columns - 2
    text = output.fitting(headers, rows, right=AMOUNTS, drop=("", "remaining"), columns=inner)
    yield from (f"  {line}" for line in text.split("\n"))
    facts = [*(("rate", _rate(rate)) for rate in account.rates), *approvals(account.approvals)]
    for name, said in facts:
        yield from output.wrapped(f"{name:<9}  {said}", columns, hang=11)
    for money in account.experiments:
        yield from pending(money, at)


# --- what a person has to do --------------------------------------------------------------------------------


def pending(money: Money, at: str = "") -> Iterator[str]:
    """What of the money waits for a person, and the command for it."""
    name, unit = money.experiment, money.unit
    for command in sorted({lease.settled_by for lease in money.unknown if lease.settled_by is not None}):
        left = [lease for lease in money.unknown if lease.settled_by == command]
        stays = output.amount(sum(lease.worst for lease in left), unit)
        names = ", ".join(lease.lease for lease in left[:MOST_NAMES]) + ", ..." * (len(left) > MOST_NAMES)
        leases = f"{_many(len(left), 'lease')} of what is gone ({names})"
        yield f"  {name}: {leases}, {stays} until the next {command} settles what was used"
    for lease in (each for each in money.unknown if each.settled_by is None):
        stays = output.amount(lease.worst, unit)
        yield f"  {lease.lease} of {name}: its end is not known; {stays} stays charged until it is"
        yield f"  -> {SETTLE.format(lease=lease.lease)}{at}"
    for machines in money.held:
        yield from held_lines(machines, name, at)
    if money.closed:
        return
    if money.overrun:
        over = output.amount(money.overrun, unit)
        yield f"  {name} has overrun by {over}: nothing more starts before a replan"
        yield f'  -> raykit budget replan {name} --reason "..." --by NAME{at}'
    if money.approval_due:
        free = output.amount(money.autonomous, unit)
        yield f"  {name} waits for an approval: from {free} on, a person approves this very plan"
        yield f"  -> raykit approve plan {name} {typed(money.ceiling)} --by NAME{at}"


def held_lines(machines: HeldMoney, experiment: str, at: str = "") -> Iterator[str]:
    """Machines that are billed though nobody works on them."""
    rate, so_far = output.amount(machines.an_hour), output.amount(machines.cost)
    yield (
        f"  ! {experiment}: {_many(machines.accelerators, 'accelerator')} of {machines.pool} still yours and "
        f"still billed, {rate}/h, {so_far} so far. They stop when you stop them:"
    )
    yield f"  -> {machines.release or f'set pools.{machines.pool}.release to the command that does'}"
    yield f'  -> raykit budget free {experiment} --how "..." --by NAME{at}      once they are gone'


# --- moving it ----------------------------------------------------------------------------------------------


def moved_lines(old: Mapping[str, Line], new: Sequence[Line], *, columns: int | None = None) -> Iterator[str]:
    """Lines before and after a replan."""
    largest = max((line.planned for line in [*old.values(), *new]), default=0)
    decimals = _decimals(largest)
    rows = []
    for line in new:
        was = old[line.line].planned if line.line in old else 0
        change = line.planned - was
        sign = f"{change / MICRO:+,.{decimals}f}" if change else NONE
        rows.append(
            (line.line, f"{was / MICRO:,.{decimals}f}", f"{line.planned / MICRO:,.{decimals}f}", sign)
        )
    before = sum(line.planned for line in old.values())
    after = sum(line.planned for line in new)
    whole = f"{(after - before) / MICRO:+,.{decimals}f}" if after != before else NONE
    rows.append(("total", f"{before / MICRO:,.{decimals}f}", f"{after / MICRO:,.{decimals}f}", whole))
    headers = ("line", "before", "after", "change")
    text = output.fitting(
        headers, rows, right=headers[1:], drop=("before",), columns=None if columns is None else columns - 2
    )
    yield from (f"  {line}" for line in text.split("\n"))
