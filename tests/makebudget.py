"""A run that is paid for by the node-hour, in a store: a real plan, its account and lines, attempts with leases.

The figures are those of a 900-dollar refresh on eight accelerators at 2.99.
"""

from __future__ import annotations

from typing import Any

from makerun import RunMaker

from raykit.budget.acts import approve_plan, plan
from raykit.budget.admit import settle
from raykit.budget.amounts import micros, worst_of
from raykit.plan import Plan, decision_digest, load_plan, projection
from raykit.records import EndReason, Held, Line, Locked, Planned, Record, Reserved, Terms
from raykit.store.accounts import Identity, data_identity, join_account
from raykit.store.ledger import Ledger

PLAN = """\
schema   = 1
name     = "{name}"
recipe   = "recipe:Tiny"
decision = "Does {name} become the production model?"
category = "model-selection"

[claim]
unit       = "one point"
target     = "its two coordinates"
population = "sixty points"
metric     = "ratio"
worthwhile = 0.01
success    = "it runs"
compare    = ["zero"]

[splits]
group       = "none"
train       = 0.8
development = 0.2

[run]
updates          = {updates}
batch            = 64
seed             = 3
params           = {{ width = 16 }}
checkpoint_every = 5
select           = "min development.ratio"
stop             = {{ metric = "development.ratio", patience = 4, min_delta = 0.001 }}
curves           = {{ every = 10, smooth = "ema 0.9" }}
wall_h           = 10

[pools.train]
gpus         = 8
usd_per_hour = {{ rate = {rate}, source = "invoice 2026-10", billed = "node" }}
release      = "lambda-stop i-0a1b"

[budget]
account     = "{account}"
ceiling_usd = {ceiling}
margin      = 1.05
confirm     = "one-run"
"""


def usd(text: str) -> int:
    return micros(text, field="amount")


class PaidByNode(RunMaker):
    """A run whose account, lines and leases are in the store, as a launch leaves them."""

    account = "corp-lm"
    rate = "2.99"
    ceiling = "900"
    lines = (("train", "target", "307.67"), ("storage", "overhead", "10"))
    confirmation = "307.67"
    expected = "354"
    by_data = False
    """Its account is also found by its data: no other may train on those."""

    @property
    def prefix(self) -> str:  # type: ignore[override]
        """Leases of one account are told apart by their launches."""
        return f"{self.experiment}-"

    def plan_file(self) -> bytes:
        return PLAN.format(
            name=self.experiment,
            updates=self.updates,
            rate=self.rate,
            account=self.account,
            ceiling=self.ceiling,
        ).encode()

    @property
    def plan(self) -> Plan:
        return load_plan(self.plan_file(), where="plan.toml")

    def settings(self) -> dict[str, Any]:
        return self.plan.plain()

    @property
    def projection(self) -> str:
        return projection(self.plan, ceiling=self.ledger.book.allocations[self.experiment].ceiling)

    def lock_plan(self) -> Locked:
        locked = super().lock_plan()
        who = Identity(
            experiment=self.experiment,
            decision=decision_digest(self.plan),
            data=data_identity(locked.data, locked.contract) if self.by_data else None,
        )
        self.ledger: Ledger = join_account(
            self.store, who, self.account, unit="usd", by="maker", at=self._tick()
        )
        self.decide(lambda book: plan(book, self._planned(locked)))
        return locked

    def _planned(self, locked: Locked) -> Planned:
        lines = [Line(line=name, purpose=why, planned=usd(amount)) for name, why, amount in self.lines]  # type: ignore[arg-type]
        lines.append(Line(line="confirmation", purpose="confirmation", planned=usd(self.confirmation)))
        rest = usd(self.ceiling) - sum(line.planned for line in lines)
        lines.append(Line(line="recovery", purpose="recovery", planned=rest))
        return Planned(
            experiment=self.experiment,
            plan=locked.plan,
            decision=decision_digest(self.plan),
            ceiling=usd(self.ceiling),
            lines=tuple(lines),
            rates={"train": usd(self.rate)},
            margin_permille=1050,
            expected=usd(self.expected),
            expected_ms=31_320_000,
        )

    def decide(self, ask: Any) -> tuple[Record, ...]:
        return self.ledger.decide(ask, at=self._tick())

    def approve(self, amount: str = "900", *, person: str = "mira") -> None:
        """A person approves this very plan."""
        self.decide(
            lambda book: approve_plan(
                book, self.experiment, covers=usd(amount), projection=self.projection, person=person
            )
        )

    def begin(self, *, hours: float = 12.24, **options: Any) -> int:
        """An attempt on a lease of so many hours."""
        self.lease = f"{self.name}-1"
        terms = Terms(
            accelerators=8,
            rate=usd(self.rate),
            source="invoice 2026-10",
            time_ms=int(hours * 3_600_000),
            margin_permille=1050,
        )
        reserved = Reserved(
            lease=self.lease,
            experiment=self.experiment,
            line="train",
            worst=worst_of(terms),
            terms=terms,
            charged=self.ledger.book.charged,
            below=usd("900"),
        )
        self.decide(lambda book: reserved)
        return super().begin(**options)

    def end(self, reason: EndReason, *, detail: str | None = None, hours: float | None = None) -> None:
        super().end(reason, detail=detail)
        if hours is not None:
            self.pay(hours, reason)

    def pay(self, hours: float, reason: EndReason = "paused") -> None:
        """Settle the lease at what was measured."""
        time_ms = int(hours * 3_600_000)
        self.decide(lambda book: settle(book, self.lease, time_ms=time_ms, reason=reason, how="measured"))

    def hold(self) -> None:
        """The machines stay, and nobody works on them."""
        held = Held(experiment=self.experiment, pool="train", accelerators=8, rate=usd(self.rate))
        self.decide(lambda book: held)
