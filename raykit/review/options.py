"""The alternatives to a run, weighed in one fixed order: use, continue, replay, pilot, fresh. Pure.

What the store says against an option goes before what the plan says. Exactly one is recommended; that changes nothing
about which one is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raykit.plan import STARTS, Option, Start
from raykit.review import words
from raykit.review.evidence import Base, Evidence, OptionCost

NOTHING = "nothing"


def weigh(evidence: Evidence) -> tuple[Option, ...]:
    """Every option with what it keeps, repeats and costs; without weights for the decision, only the plan itself."""
    if evidence.base is None:
        return (_from_nothing(evidence),)
    weighing = _Weighing(evidence, evidence.base)
    recommended = weighing.recommended()
    return tuple(weighing.option(start, recommended=start == recommended) for start in STARTS)


def cheapest(options: tuple[Option, ...]) -> Option:
    """The cheapest option that can still resolve what is uncertain: one that trains, if any does."""
    open_ = [each for each in options if each.possible and each.option != "use"]
    open_ = [each for each in open_ if each.against is None or each.chosen] or open_ or list(options)
    return min(open_, key=lambda each: (each.cost is None, each.cost or 0))


def warranted(evidence: Evidence) -> bool:
    """Whether what changed plausibly warrants that the whole run is repeated."""
    base, declared = evidence.base, evidence.plan.base
    if base is None or not base.verifies or evidence.model_settings:
        return True
    because = None if declared is None else declared.because
    if because in ("initialization", "identical-arms"):
        return evidence.plan.category == "causal-comparison" or evidence.plan.research
    if because == "base-invalid":
        return declared is not None and declared.invalid_without is not None
    return not small_change(evidence) or not much_repeated(evidence)


def small_change(evidence: Evidence) -> bool:
    """Whether little has changed beside what would be repeated. Undeclared, the two shares are compared."""
    declared = evidence.plan.base
    changed = changed_share(evidence)
    if changed is None:
        return True
    limit = declared.small_share if declared is not None else None
    return changed < (limit if limit is not None else repeated_share(evidence))


def much_repeated(evidence: Evidence) -> bool:
    """Whether much is trained anew. What a plan does not declare counts as much."""
    declared = evidence.plan.base
    limit = declared.little_share if declared is not None else None
    return limit is None or repeated_share(evidence) > limit


def changed_share(evidence: Evidence) -> float | None:
    """The rows that changed, of those that there were; None if nobody knows."""
    change = evidence.change
    if change is None:
        return None
    return change.changed / change.before if change.before else 1.0


def repeats(evidence: Evidence) -> tuple[int, int]:
    """Updates that a fresh start trains anew, and all that it trains."""
    known = evidence.options.get("fresh")
    updates = evidence.plan.run.updates if known is None else known.updates
    return min(updates, 0 if evidence.base is None else evidence.base.updates), updates


def repeated_share(evidence: Evidence) -> float:
    """The share of a fresh start's updates that were trained before."""
    again, updates = repeats(evidence)
    return again / updates if updates else 0.0


def _from_nothing(evidence: Evidence) -> Option:
    known = evidence.options.get("fresh")
    plan = evidence.plan
    return Option(
        option="fresh",
        what="train from the start; nothing is there to reuse",
        preserves="nothing: no weights for this decision are known here",
        discards=NOTHING,
        repeats=NOTHING,
        repeats_updates=0,
        time=words.hours(None if known is None else known.time_ms),
        time_ms=None if known is None else known.time_ms,
        accelerator_ms=None if known is None else known.accelerator_ms,
        cost=None if known is None else known.cost,
        value=f"{plan.claim.metric} against {', '.join(plan.claim.compare)}",
        risk="nothing of this decision has been measured yet",
        chosen=True,
        recommended=True,
    )


@dataclass(frozen=True, slots=True)
class _Weighing:
    """The options of one plan beside one base."""

    evidence: Evidence
    base: Base

    @property
    def name(self) -> str:
        return self.base.locked.candidate

    def option(self, start: Start, *, recommended: bool) -> Option:
        known = self.evidence.options.get(start, _UNTRAINED if start == "use" else _UNKNOWN)
        again = repeats(self.evidence) if start == "fresh" else (0, known.updates)
        chosen = start == self.evidence.chosen
        return Option(
            option=start,
            what=self._what(start),
            preserves=self._preserves(start),
            discards=self._discards(start),
            repeats=f"{again[0]:,} of {again[1]:,} updates" if start == "fresh" else NOTHING,
            repeats_updates=again[0],
            time=words.hours(known.time_ms),
            time_ms=known.time_ms,
            accelerator_ms=known.accelerator_ms,
            cost=known.cost,
            value=self._value(start),
            risk=self._risk(start),
            against=None if chosen else self.refuted(start) or self._reasons().get(start),
            possible=self.possible(start),
            chosen=chosen,
            recommended=recommended,
        )

    def possible(self, start: Start) -> bool:
        """Whether it can be done at all with these bytes."""
        if start == "fresh":
            return True
        if not self.base.verifies or self.evidence.base_problem is not None:
            return False
        if start == "replay" and self._mix() is None:
            return False
        return start == "use" or not self.evidence.model_settings

    def refuted(self, start: Start) -> str | None:
        """What the store says against it."""
        if start != "fresh" and not self.base.verifies:
            return f"the files of {self.name} do not match its manifest"
        if not self.possible(start):
            return self._impossible()
        pilot = self.evidence.pilot
        if start == "pilot" and pilot is not None:
            return f"done: {pilot.effect} at {pilot.updates:,} updates ({pilot.experiment})"
        if start == "use" and self.base.role == "diagnostic" and _is_production(self.evidence):
            return f"{self.name} is a diagnostic, and no production model"
        return self._too_dear(start)

    def _impossible(self) -> str:
        if self.evidence.base_problem is not None:
            return self.evidence.base_problem
        if self.evidence.model_settings:
            return f"its weights do not fit: {self.evidence.model_settings[0]}"
        if self.evidence.plan.data is None:
            return "the recipe brings its rows as one: there is no [data] with shares of old and new"
        return "[data] has no mix: nothing says how much of each source"

    def _too_dear(self, start: Start) -> str | None:
        """A sum that speaks for itself: above the ceiling, or above that of a pilot that is chosen."""
        cost, money = self._cost(start), self.evidence.money
        if cost is None or start == "use":
            return None
        if money.billed and cost >= money.ceiling:
            ceiling = words.money(money.ceiling, money.unit)
            return f"costs {words.money(cost, money.unit)}, above the ceiling of {ceiling}"
        pilot = self._cost("pilot")
        if self.evidence.chosen == "pilot" and start != "pilot" and pilot is not None and cost > pilot:
            both = words.money(cost, money.unit), words.money(pilot, money.unit)
            return f"costs {both[0]}, and the pilot that can answer first {both[1]}"
        return None

    def recommended(self) -> Start:
        """The chosen one, unless it repeats more than the change warrants and a cheaper one is there."""
        chosen = self.evidence.chosen
        if not self.possible(chosen):
            return "use" if self.possible("use") else "fresh"
        if chosen != "fresh" or warranted(self.evidence):
            return chosen
        change = self.evidence.change
        unchanged = change is not None and not change.changed and not self.evidence.settings
        order: tuple[Start, ...] = ("continue", "replay", "pilot", "use")
        for start in ("use", *order) if unchanged else order:
            if self.possible(start) and self.refuted(start) is None:
                return start
        return chosen

    def _cost(self, start: Start) -> int | None:
        return self.evidence.options.get(start, _UNKNOWN).cost

    def _reasons(self) -> Mapping[Start, str | None]:
        declared = self.evidence.plan.base
        return {} if declared is None or not self.base.declared else declared.reasons

    # --- cells -----------------------------------------------------------------------------------------------

    def _what(self, start: Start) -> str:
        match start:
            case "use":
                return f"use {self.name} as it is"
            case "continue" | "replay":
                mix = self._mix()
                word = "continue" if start == "continue" else "continue with replay"
                return f"{word}, {mix}" if mix else f"{word} on the rows of today"
            case "pilot":
                return f"pilot, {self.evidence.options.get('pilot', _UNKNOWN).updates:,} updates"
            case "fresh":
                return "fresh, all rows"

    def _mix(self) -> str | None:
        data = self.evidence.plan.data
        if data is None or data.mix is None:
            return None
        return ", ".join(f"{100 * share:.0f}% {name}" for name, share in data.mix.items())

    def _kept(self) -> str:
        declared = self.evidence.plan.base
        keep = declared.keep if declared is not None and declared.keep else ("weights",)
        return " and ".join({"weights": "weights", "optimizer": "optimizer state"}[part] for part in keep)

    def _preserves(self, start: Start) -> str:
        if start == "use":
            return f"all of {self.name}, at update {self.base.locked.update:,}"
        if start == "fresh":
            return f"nothing in what is trained; {self.name} stays in the store, unused"
        return f"{self._kept()} of {self.name}"

    def _discards(self, start: Start) -> str:
        if start == "fresh":
            return f"{self.base.updates:,} updates of {self.name}{invested(self.evidence)}"
        declared = self.evidence.plan.base
        if start == "use" or (declared is not None and "optimizer" in declared.keep):
            return NOTHING
        return f"the optimizer state of {self.name}"

    def _value(self, start: Start) -> str:
        metric, effect = self.evidence.plan.claim.metric, self.evidence.plan.claim.worthwhile
        match start:
            case "use":
                return f"no new evidence: what is known of {self.name} stays"
            case "continue":
                return f"whether what changed moves {metric} by {effect:g}"
            case "replay":
                return f"the same, with a fixed share of the rows that {self.name} knows"
            case "pilot":
                return f"whether continuing moves {metric} at all"
            case "fresh":
                hope = self.evidence.plan.base is not None and self.evidence.plan.base.speculative
                return "every row seen equally often from one start" + (
                    "; the benefit is speculative" if hope else ""
                )

    def _risk(self, start: Start) -> str:
        change = self.evidence.change
        if not self.possible(start):
            return self.refuted(start) or "it cannot be done"
        match start:
            case "use":
                if change is None:
                    return "how its rows differ from those of today is not known"
                if not change.changed:
                    return "none: the rows are those that it was trained on"
                return f"has not seen what changed: {words.rows(change)}"
            case "continue" | "replay":
                mix = self._mix()
                return (
                    f"shares are fixed: {mix}"
                    if mix
                    else "added rows may dominate: no weighting schedule is set"
                )
            case "pilot":
                return f"a short run may not carry over to {self.evidence.plan.run.updates:,} updates"
            case "fresh":
                again = repeats(self.evidence)
                return f"trains {words.of(*again)} updates again; that it ends better is not measured"


_UNKNOWN = OptionCost(updates=0, time_ms=None, accelerator_ms=None, cost=None)
_UNTRAINED = OptionCost(updates=0, time_ms=0, accelerator_ms=0, cost=0)


def invested(evidence: Evidence) -> str:
    """`, 461.6 accelerator-hours, $1,380`: what the base took, as far as it is known."""
    base = evidence.base
    if base is None:
        return ""
    parts = []
    if base.accelerator_ms is not None:
        parts.append(f"{base.accelerator_ms / words.HOUR_MS:,.2f} accelerator-hours")
    if base.cost is not None:
        parts.append(words.money(base.cost, evidence.money.unit))
    return "".join(f", {part}" for part in parts)


def _is_production(evidence: Evidence) -> bool:
    return evidence.plan.category == "production-improvement"
