"""How many workers there may be, and what the canary has shown: that rows are good, and what all of them will cost.

The loss window of a set is one unit for each worker: a unit that was not published is made again from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raykit.budget.amounts import time_cost
from raykit.records import CanaryPassed, GenerationContract, SetFinding, UnitReceipt
from raykit.shards import bounds, units
from raykit.shards.closing import Account

FEW = 8
"""So many workers at most, until as many units more than the canary are published."""


def most_workers(*, canary_passed: bool, canary_units: int, published: int, slots: int) -> int:
    """How many workers there may be at once: one, then eight, then as many as there are slots.

    `published` are the units that were made under this very contract.
    """
    if not canary_passed:
        return min(1, slots)
    return slots if published >= canary_units + FEW else min(FEW, slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryFailed:
    """The first units of a contract, taken together, are not within its bounds."""

    contract: str
    units: int
    findings: tuple[SetFinding, ...]

    @property
    def words(self) -> str:
        """`the canary of 2 units failed: 31 of 1,000 rows are duplicates (3.1 %), and 1 % may be`."""
        many = f"{self.units:,} unit{'' if self.units == 1 else 's'}"
        return f"the canary of {many} failed: " + "; ".join(bounds.words(each) for each in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a whole set would take on one accelerator, from units that were measured."""

    whole_ms: int
    low_ms: int
    """At the pace of the fastest of them."""
    high_ms: int


def canary_of(
    contract: GenerationContract,
    receipts: Iterable[UnitReceipt],
    took_ms: Mapping[int, int],
    peak_bytes: int,
    *,
    slots: int,
    rate: int,
    margin_permille: int,
    setup_ms: int,
    canary_units: int,
) -> CanaryPassed | CanaryFailed:
    """Judge the canary: the receipts of its units. `took_ms` says what units took that were measured, these or others.

    Units that a person has given up say nothing of the producer, and their receipts do not count.

    Raises:
        GateError: two receipts are of one unit, or one is of another contract.
        ValueError: no unit was measured.
    """
    account, canary = Account(contract), frozenset(units.canary_of(contract, canary_units))
    for receipt in receipts:
        if receipt.unit in canary and receipt.given_up is None:
            account.add(receipt)
    found = account.tally()
    findings = bounds.judge_canary(contract, found.rows, found.failed, found.counts)
    if findings:
        return CanaryFailed(contract=contract.digest, units=found.units, findings=findings)
    whole = projected(contract, took_ms)
    return CanaryPassed(
        name=contract.name,
        contract=contract.digest,
        units=found.units,
        rows=found.rows,
        counts=found.counts,
        took_ms=sum(took_ms.values()),
        peak_bytes=peak_bytes,
        whole_ms=whole.whole_ms,
        low_ms=whole.low_ms,
        high_ms=whole.high_ms,
        worst_cost=worst_cost(
            whole,
            slots=slots,
            rate=rate,
            margin_permille=margin_permille,
            setup_ms=setup_ms + (again_ms(took_ms, setup_ms) if contract.exact else 0),
        ),
    )


def projected(contract: GenerationContract, took_ms: Mapping[int, int]) -> Projection:
    """The time of all rows at the pace of units that were measured; the last unit may be smaller than the others.

    Raises:
        ValueError: none was measured.
    """
    if not took_ms:
        raise ValueError("no unit was measured")
    rows = {unit: units.unit_of(contract, unit).rows for unit in took_ms}

    def whole(time_ms: int, of_rows: int) -> int:
        return -(-time_ms * contract.rows // of_rows)

    each = [whole(time_ms, rows[unit]) for unit, time_ms in took_ms.items()]
    return Projection(
        whole_ms=whole(sum(took_ms.values()), sum(rows.values())), low_ms=min(each), high_ms=max(each)
    )


def again_ms(took_ms: Mapping[int, int], setup_ms: int) -> int:
    """What it takes a worker at most to have its first unit made by another process as well."""
    return setup_ms + max(took_ms.values())


def worst_cost(whole: Projection, *, slots: int, rate: int, margin_permille: int, setup_ms: int) -> int:
    """What a set costs at most at the pace of the slowest unit, each worker having set itself up once."""
    return time_cost(whole.high_ms + slots * setup_ms, 1, rate, margin_permille=margin_permille)
