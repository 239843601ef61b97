"""What a review says is not so, and what would be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason why a plan does not go on as it is."""

    item: str
    """The rule that it breaks, such as `REVIEW-09` or `PLAN-36`."""
    title: str
    """That rule in a few words."""
    field: str
    """The key of the plan that it is about, dotted."""
    problem: str
    """What is there, or what is not."""
    rule: str
    """What would pass."""
    remedy: str | None = None
    """One command or line that helps."""
    asks: bool = False
    """Something only has to be said; nothing that was said is refused."""
