"""One rule of the review: what it is called, what is judged, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from raykit.review.evidence import Evidence
from raykit.review.finding import Finding


class Flaw(NamedTuple):
    """Where one piece of evidence breaks a rule."""

    field: str
    """The key of the plan that it is about, dotted."""
    problem: str
    wanted: str
    """What would pass."""
    remedy: str | None = None
    """One command or line that helps; that of the rule if not said."""
    asks: bool = False
    """Something only has to be said."""
    rule: str | None = None
    """The requirement, where one rule stands for several."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is judged under one id."""

    id: str
    title: str
    judge: Callable[[Evidence], Iterable[Flaw]]
    remedy: str | None = None

    def findings(self, evidence: Evidence) -> Iterator[Finding]:
        """Every reason why this evidence breaks the rule."""
        for flaw in self.judge(evidence):
            yield Finding(
                item=flaw.rule or self.id,
                title=self.title,
                field=flaw.field,
                problem=flaw.problem,
                rule=flaw.wanted,
                remedy=flaw.remedy or self.remedy,
                asks=flaw.asks,
            )
