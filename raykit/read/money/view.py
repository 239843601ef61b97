"""Money as people look at it: lines, leases, held machines, approvals, rates; of an experiment and of an account."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from raykit.records import MICRO, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the run is: what is left of the work is expected at this pace."""

    launches: tuple[str, ...] = ()
    """Those that are at work: the launch that has the run, or those of the trials that are trained."""
    gone: tuple[str, ...] = ()
    """Those whose process has ended, as is seen from here: whoever goes on settles what they have left open."""
    complete: bool = False
    update: int = 0
    updates: int | None = None
    update_s: float | None = None
    left: int | None = None
    """Of a search: what its rows that have no end are expected to cost yet."""
    sets_left_ms: int = 0
    """What is left of its synthetic sets takes so long on one accelerator, at the pace of their canaries."""
    sets_unknown: tuple[str, ...] = ()
    """Its sets of which no canary tells yet how long they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineMoney:
    """One line of a budget."""

    line: str
    purpose: str
    planned: int
    actual: int
    reserved: int

    @property
    def remaining(self) -> int:
        return self.planned - self.actual - self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMoney:
    """A reservation whose end is not known."""

    lease: str
    line: str
    worst: int
    so_far: int
    since: float
    time_ms: int
    accelerators: int
    rate: int
    running: bool
    """Who it was granted to is at work. Otherwise nobody knows what became of it."""
    settled_by: str | None = None
    """The command that settles it: who it was granted to is known to be gone. None while only a person could say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMoney:
    """Machines that nobody works on and that are billed."""

    pool: str
    accelerators: int
    rate: int
    since: float
    cost: int
    release: str | None
    """The plan's command that gives them back."""

    @property
    def an_hour(self) -> int:
        return self.accelerators * self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalMoney:
    """What a person has approved; `number` is that of its ledger entry."""

    number: int
    at: float
    scope: str
    covers: int
    experiment: str | None
    person: str
    scripted: bool
    current: bool | None
    """Whether it covers the plan as it is locked now; None if that cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMoney:
    """What an accelerator-hour costs, and who says so."""

    pool: str
    rate: int
    planned: int | None
    """What it was when a person last decided about this budget."""
    source: str | None
    on: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The money of one experiment at one moment."""

    experiment: str
    account: str
    unit: Unit
    ceiling: int
    figure: int | None
    """What a person has let the whole account come to."""
    account_charged: int
    """Settled and reserved, of all experiments of the account."""
    lines: tuple[LineMoney, ...]
    idle: int
    """What machines have cost while nobody worked."""
    expected: int
    """What the whole was expected to cost when it was planned, without any reserve."""
    projected: int
    """What it comes to in the end, as far as can be told now."""
    unprojected: tuple[str, ...]
    """Billed synthetic sets of which that has nothing: no canary tells yet what they cost."""
    expected_ms: int
    held_ms: int
    """How long accelerators were held."""
    accelerator_ms: int
    """The same, times the accelerators: the time invested."""
    attempts: int
    uncertain: bool
    overrun: int
    """By how much reserves are eaten into: above 0, everything waits for a replan."""
    closed: bool
    billed: bool
    approval_due: bool
    """A person has to approve this plan before its next attempt."""
    autonomous: int
    """What the account stays below without an approval of this plan."""
    leases: tuple[LeaseMoney, ...]
    held: tuple[HeldMoney, ...]
    approvals: tuple[ApprovalMoney, ...]
    rates: tuple[RateMoney, ...]
    stop_rule: str
    moved_at: float | None = None
    """When a person last moved money of this experiment, or let it have more."""

    @property
    def planned(self) -> int:
        return sum(line.planned for line in self.lines)

    @property
    def actual(self) -> int:
        return sum(line.actual for line in self.lines)

    @property
    def reserved(self) -> int:
        return sum(line.reserved for line in self.lines)

    @property
    def remaining(self) -> int:
        return self.ceiling - self.actual - self.reserved

    @property
    def leaves_out(self) -> str:
        """What `projected` has nothing of, in words; empty if it has everything."""
        if not self.unprojected:
            return ""
        many = len(self.unprojected) > 1
        whose = "whose canaries have" if many else "whose canary has"
        return f", without the set{'s' * many} {', '.join(self.unprojected)}, {whose} not passed"

    @property
    def unknown(self) -> tuple[LeaseMoney, ...]:
        """The leases that nobody is known to work under, and that cost something as long as that is so."""
        return tuple(lease for lease in self.leases if not lease.running and lease.worst)

    def plain(self) -> dict[str, Any]:
        """All of it as JSON values; amounts are whole numbers, `micros_per_unit` of them to the unit."""
        plain = {key: value for key, value in asdict(self).items() if not isinstance(value, tuple)}
        totals = {name: getattr(self, name) for name in ("planned", "actual", "reserved", "remaining")}
        return {
            **plain,
            "micros_per_unit": MICRO,
            "totals": totals,
            "unprojected": list(self.unprojected),
            "lines": [{**asdict(line), "remaining": line.remaining} for line in self.lines],
            **{
                name: [asdict(item) for item in getattr(self, name)]
                for name in ("leases", "held", "approvals", "rates")
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountMoney:
    """A whole account at one moment."""

    account: str
    unit: Unit
    figure: int | None
    settled: int
    reserved: int
    idle: int
    """What held machines have cost so far and nobody has settled."""
    experiments: tuple[Money, ...]
    approvals: tuple[ApprovalMoney, ...]
    rates: tuple[RateMoney, ...]

    def plain(self) -> dict[str, Any]:
        """All of it as JSON values; amounts are whole numbers, `micros_per_unit` of them to the unit."""
        return {
            "account": self.account,
            "unit": self.unit,
            "micros_per_unit": MICRO,
            "figure": self.figure,
            "settled": self.settled,
            "reserved": self.reserved,
            "idle": self.idle,
            "experiments": [money.plain() for money in self.experiments],
            "approvals": [asdict(approval) for approval in self.approvals],
            "rates": [asdict(rate) for rate in self.rates],
        }
