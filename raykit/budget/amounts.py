"""Amounts: whole micro-units, read from what people write and shown as they expect it; and what time costs."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from raykit.errors import InvalidInput
from raykit.records import LARGEST, MICRO, Micros, Terms, Unit

HOUR_MS = 3_600_000
PERMILLE = 1000


def micros(text: str | float | int | Decimal, *, field: str) -> Micros:
    """The micro-units of an amount such as `1.25`, exactly.

    Raises:
        InvalidInput: it is no number, negative, not finite, finer than a micro-unit, or more than a billion.
    """
    rule = "a plain number from 0 to 1,000,000,000 with at most six decimals"
    try:
        amount = Decimal(repr(text) if isinstance(text, float) else text)
    except (InvalidOperation, ValueError, TypeError) as error:
        raise InvalidInput(f"{text!r} is not an amount", field=field, value=str(text), rule=rule) from error
    if not amount.is_finite() or amount < 0 or amount * MICRO > LARGEST:
        raise InvalidInput(
            f"{text} is not an amount that can be spent", field=field, value=str(text), rule=rule
        )
    scaled = amount * MICRO
    if scaled != scaled.to_integral_value():
        raise InvalidInput(f"{text} is finer than a millionth", field=field, value=str(text), rule=rule)
    return int(scaled)


def shown(amount: int, unit: Unit = "usd") -> str:
    """`1250000` as `1.25`, in dollars or accelerator-hours; fractions of a cent are shown, never rounded away."""
    whole, part = divmod(abs(amount), MICRO)
    decimals = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}{whole:,}.{decimals}" + (" h" if unit == "accelerator-hours" else "")


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
    """What a lease on these terms has cost after `time_ms`."""
    return time_cost(time_ms, terms.accelerators, terms.rate) + terms.fixed
