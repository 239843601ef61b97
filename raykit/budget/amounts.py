"""Amounts: whole micro-units, read from what people write and shown as they expect it; and what time costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from pydantic import ValidationError

from raykit.errors import InvalidInput
from raykit.records import LARGEST, MICRO, Micros, Terms, Unit

HOUR_MS = 3_600_000
PERMILLE = 1000


PLAIN = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
MICRO_UNIT = Decimal(1) / MICRO


def micros(text: str | float | int | Decimal, *, field: str) -> Micros:
    """The micro-units of an amount such as `1.25`, exactly.

    Raises:
        InvalidInput: it is no number, negative, not finite, finer than a micro-unit, or more than a billion.
    """
    amount = _decimal(text)
    whole_micros = None
    if amount is not None and 0 <= amount <= LARGEST // MICRO:
        # Compared, not computed with: an operation would round to 28 digits first.
        rounded = amount.quantize(MICRO_UNIT)
        whole_micros = int(rounded * MICRO) if rounded == amount else None
    if whole_micros is None:
        given = "a number of that size" if isinstance(text, int) and abs(text) > LARGEST else str(text)[:40]
        raise InvalidInput(
            f"{given} is not an amount",
            field=field,
            value=given,
            rule="a plain number from 0 to 1,000,000,000 with at most six decimals",
        )
    return whole_micros


def _decimal(text: str | float | int | Decimal) -> Decimal | None:
    """`text` as a finite number; None if it is none."""
    if isinstance(text, bool):
        return None
    if isinstance(text, str):
        return Decimal(text.strip()) if PLAIN.fullmatch(text.strip()) else None
    amount = Decimal(repr(text) if isinstance(text, float) else text)
    return amount if amount.is_finite() else None


def shown(amount: int, unit: Unit = "usd") -> str:
    """`1250000` as `1.25`, in dollars or accelerator-hours; fractions of a cent are shown, never rounded away."""
    whole, part = divmod(abs(amount), MICRO)
    decimals = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}{whole:,}.{decimals}" + (" h" if unit == "accelerator-hours" else "")


def plain(amount: int) -> str:
    """An amount as a person types it on a command line: no commas, no unit."""
    return shown(amount).replace(",", "")


def time_cost(time_ms: int, accelerators: int, rate: int, *, margin_permille: int = PERMILLE) -> Micros:
    """What it costs to hold accelerators for a time, rounded up to a whole micro-unit."""
    return -(-time_ms * accelerators * rate * margin_permille // (HOUR_MS * PERMILLE))


def affordable_ms(
    amount: int, accelerators: int, rate: int, *, margin_permille: int = PERMILLE
) -> int | None:
    """The longest time whose cost is at most `amount`; None if it costs nothing."""
    each = accelerators * rate * margin_permille
    return None if each == 0 else max(amount, 0) * HOUR_MS * PERMILLE // each


def worst_of(terms: Terms) -> Micros:
    """What a reservation on these terms comes to at most."""
    held = time_cost(terms.time_ms, terms.accelerators, terms.rate, margin_permille=terms.margin_permille)
    return held + terms.fixed


def measured(terms: Terms, time_ms: int) -> Micros:
    """What a lease on these terms has cost after `time_ms`.

    Rounded down where a reservation is rounded up, so that attempts that together take a run's whole time do not
    come to more than its worst case by a rounding.
    """
    return time_ms * terms.accelerators * terms.rate // HOUR_MS + terms.fixed


@contextmanager
def as_input() -> Iterator[None]:
    """Make an event of values that somebody gave: what no record may hold is refused by name.

    Raises:
        InvalidInput: a value is negative, huge, empty or otherwise not what the record's field may hold.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        raise InvalidInput(
            f"{field or error.title}: {first['msg']}", field=field, value=first["input"], rule=first["msg"]
        ) from error
