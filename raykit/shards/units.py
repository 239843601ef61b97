"""The division of a set into units: runs of consecutive rows. Nothing is listed: each unit is arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from raykit.ids import Digest, digest_of
from raykit.records import GenerationContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Rows that are made and published together: from `first`, as many as `rows`."""

    number: int
    """From 0."""
    first: int
    """Number of its first row in the set, from 0."""
    rows: int


def units_of(contract: GenerationContract) -> int:
    """How many units a set has."""
    return -(-contract.rows // contract.unit_rows)


def unit_of(contract: GenerationContract, number: int) -> Unit:
    """One unit of a set.

    Raises:
        IndexError: the set has no such unit.
    """
    first = number * contract.unit_rows
    if number < 0 or first >= contract.rows:
        raise IndexError(f"unit {number} of {units_of(contract)}")
    return Unit(number=number, first=first, rows=min(contract.unit_rows, contract.rows - first))


def unit_id(contract: Digest, number: int) -> Digest:
    """The identity of a unit of work: what claims, failures and conflicts name as their request."""
    return digest_of({"contract": contract, "unit": number})


def input_of(contract: GenerationContract, row: int) -> tuple[int, int]:
    """Which input a row is made from, and which of its samples it is, both from 0."""
    return divmod(row, contract.samples)


def canary_of(contract: GenerationContract, canary_units: int) -> tuple[int, ...]:
    """The first units that are made under this contract: what an earlier one has made shows nothing of its producer."""
    found: list[int] = []
    unit = 0
    for first, last in (*_reused(contract), (units_of(contract), units_of(contract))):
        found += range(unit, min(first, unit + canary_units - len(found)))
        unit = last + 1
    return tuple(found)


def _reused(contract: GenerationContract) -> tuple[tuple[int, int], ...]:
    return () if contract.reuses is None else contract.reuses.units


def rate(per_s: float) -> str:
    """`793.7`, `25,000`: so many rows in a second, as people read it."""
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.4g}"
