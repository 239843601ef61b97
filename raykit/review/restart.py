"""Training from scratch though a trained checkpoint answers to the same decision: what a person is asked first.

Such a restart is a request of its own, never a clause of a plan. It is exempt only if the account stays below the
amount that needs no approval and the weights that are there are kept, and both were verified. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raykit.errors import ApprovalError
from raykit.ids import Digest
from raykit.plan import Option
from raykit.review import words
from raykit.review.evidence import Evidence
from raykit.review.finding import Finding
from raykit.review.options import (
    invested,
    much_repeated,
    repeats,
    small_change,
)

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A run that has weights for the same decision, as the store has it."""

    experiment: str
    update: int
    """Of its newest checkpoint that verifies."""
    updates: int
    """The updates that its plan asks for."""
    manifest: Digest
    accelerator_s: float | None
    """Accelerator-seconds invested until that checkpoint, where they were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A plan that begins anew beside an earlier run."""

    experiment: str
    earlier: Earlier
    rows_before: int
    rows_added: int
    rows_removed: int
    rows_changed: int
    changed: tuple[str, ...]
    """What else of the training contract differs, as `run.params.lr: 0.001 -> 0.002`."""
    repeats: int
    """Updates that train anew what the earlier run has trained."""
    updates: int
    time: str
    cost: str
    below_autonomous: bool
    preserved: bool
    """The earlier checkpoint verifies, and this plan replaces none of its bytes."""

    @property
    def exempt(self) -> bool:
        """Both were verified: what it may cost in all, and that the weights stay."""
        return self.below_autonomous and self.preserved


def triggers(restart: Restart) -> Iterator[str]:
    """Why this restart needs an approval of its own. What a plan does not declare counts as triggered."""
    yield "a valid trained checkpoint exists"
    yield "all training that was done is discarded"
    rows = restart.rows_added + restart.rows_removed + restart.rows_changed
    share = _percent(rows, restart.rows_before)
    yield f"the change is {share} of the rows, and nobody has declared what would be much"
    yield f"{restart.repeats:,} updates are repeated, and nobody has declared what would be little"
    if not restart.changed:
        yield "a continuation answers the same question"


def request(restart: Restart) -> Facts:
    """What a person has to see before saying yes, in order."""
    earlier = restart.earlier
    invested = (
        "" if earlier.accelerator_s is None else f", {earlier.accelerator_s / 3600:.2f} accelerator-hours"
    )
    settings = "; ".join(restart.changed) or "no setting that shapes the weights"
    return (
        (
            "discards",
            f"{earlier.experiment} at update {earlier.update:,} (sha256 {earlier.manifest[:8]}{invested}): kept on "
            "disk, not used",
        ),
        ("changed", f"{_rows(restart)}; {settings}"),
        (
            "repeats",
            f"{restart.repeats:,} of {restart.updates:,} ({_percent(restart.repeats, restart.updates)}) updates",
        ),
        ("costs", f"{restart.time}, {restart.cost}"),
        (
            "instead",
            f"use {earlier.experiment} as it is (0 updates, 0.00): raykit checkpoints list {earlier.experiment}; "
            f"go on with it: raykit resume {earlier.experiment}",
        ),
        ("because", "; ".join(triggers(restart))),
    )


def require_approved(restart: Restart, projection: Digest, approved: Sequence[Digest]) -> None:
    """Let only a restart pass that a person has approved, or that is exempt.

    Raises:
        ApprovalError: neither; `facts` is the request.
    """
    if restart.exempt or projection in approved:
        return
    raise ApprovalError(
        f"{restart.experiment} starts from scratch, and that needs its own approval",
        facts=request(restart),
        rule="an approval of the restart by itself; no plan, no other approval and no low ceiling implies it",
        remedy='raykit approve restart PLAN --reason "why it is still right" --by NAME',
    )


def _rows(restart: Restart) -> str:
    """`2,953 of 59,022 (5.0%) rows changed`: every count that is not 0, of the rows that there were."""
    counts = {
        "added": restart.rows_added,
        "removed": restart.rows_removed,
        "changed": restart.rows_changed,
    }
    before = restart.rows_before
    parts = [f"{n:,} of {before:,} ({_percent(n, before)}) rows {what}" for what, n in counts.items() if n]
    return ", ".join(parts) or f"0 of {before:,} (0.0%) rows"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "all"


# --- the same, of the evidence of a review ------------------------------------------------------------------


def pending(evidence: Evidence) -> bool:
    """Whether a person still has to let it begin anew: it is paid for, not approved, and not exempt."""
    return (
        evidence.restarts and evidence.money.billed and not evidence.restart_approved and not evidence.exempt
    )


def reasons(evidence: Evidence, options: Sequence[Option]) -> Iterator[str]:
    """Why this restart needs an approval of its own. What a plan does not declare counts as triggered."""
    declared, base = evidence.plan.base, evidence.base
    if base is not None and base.verifies:
        yield "a valid checkpoint exists"
    yield "all training is discarded"
    if small_change(evidence):
        limit = "" if declared is not None and declared.small_share else " (what is small is not declared)"
        change = evidence.change
        share = (
            "of a size that nobody knows" if change is None else words.percent(change.changed, change.before)
        )
        yield f"the change is {share}{limit}"
    why = None if declared is None else declared.reason
    if why is None or words.purity(why) or (declared is not None and declared.because == "identical-arms"):
        yield (
            "no measured quality is its reason"
            if why is None
            else "its reason is purity, not measured quality"
        )
    if much_repeated(evidence):
        limit = "" if declared is not None and declared.little_share else " (what is little is not declared)"
        again, updates = repeats(evidence)
        yield f"{words.percent(again, updates)} of its updates are repeated{limit}"
    for option in options:
        if option.option in ("continue", "replay", "pilot") and option.possible and option.against is None:
            yield (
                "a continuation answers the same question"
                if option.option != "pilot"
                else "a pilot can answer first"
            )
            return


def facts(evidence: Evidence, options: Sequence[Option], unsaid: Sequence[Finding] = ()) -> Facts:
    """What a person has to see before saying yes, in order."""
    base, plan = evidence.base, evidence.plan
    assert base is not None
    name = base.locked.candidate
    settings = "; ".join(evidence.settings) or "no setting that shapes the weights"
    changed = "how the rows differ is not known" if evidence.change is None else words.rows(evidence.change)
    return (
        (
            "discards",
            f"{name} is kept on disk, but its {base.updates:,} updates are not used "
            f"(update {base.locked.update:,}, sha256 {base.locked.manifest[:8]}{invested(evidence)})",
        ),
        ("changed", f"{changed}; {settings}"),
        ("repeats", _repeats(evidence)),
        ("costs", _costs(evidence)),
        ("instead", "; ".join(_instead(evidence, option) for option in options if option.option != "fresh")),
        ("your why", _why(plan.base.reason if plan.base is not None else None, evidence, unsaid)),
    )


def approval(evidence: Evidence, options: Sequence[Option], unsaid: Sequence[Finding] = ()) -> ApprovalError:
    """The request as a refusal: a person has to approve this restart, by itself."""
    return ApprovalError(
        f"{evidence.plan.name}: a fresh start needs its own approval "
        f"(triggers: {', '.join(reasons(evidence, options))})",
        facts=facts(evidence, options, unsaid),
        rule="an approval of the restart by itself; no plan, no other approval and no low ceiling implies it",
        remedy='raykit approve restart PLAN --reason "why it is still right" --by NAME',
    )


def _repeats(evidence: Evidence) -> str:
    again, updates = repeats(evidence)
    known = evidence.options.get("fresh")
    held = ""
    if known is not None and known.time_ms and known.accelerator_ms:
        held = f", {words.hours(known.time_ms)} x {known.accelerator_ms // known.time_ms} {_device(evidence)}"
    return f"{again:,} of {updates:,} updates ({words.percent(again, updates)}){held}"


def _device(evidence: Evidence) -> str:
    pool = evidence.plan.pools.get("train")
    return "accelerators" if pool is None else pool.nodes.get("ray.io/accelerator-type", "accelerators")


def _costs(evidence: Evidence) -> str:
    money, known = evidence.money, evidence.options.get("fresh")
    expected = money.expected if known is None or known.cost is None else known.cost
    time_ms = (money.expected_ms or None) if known is None else known.time_ms
    text = f"{words.hours(time_ms)}, {words.money(expected, money.unit)} expected"
    worst = f"the plan itself: {words.money(money.worst, money.unit)} at worst"
    ceiling = money.ceiling if money.account_ceiling is None else money.account_ceiling
    free = max(0, ceiling - money.charged)
    if max(expected, money.worst) < free:
        return f"{text}; {worst}"
    where = (
        "above the ceiling"
        if max(expected, money.worst) >= ceiling
        else "more than is left under the ceiling"
    )
    return (
        f"{text}: {where} of account {money.account} ({words.money(ceiling, money.unit)}, of which "
        f"{words.money(free, money.unit)} is neither spent nor reserved); {worst}"
    )


def _instead(evidence: Evidence, option: Option) -> str:
    if not option.possible:
        return f"{option.what}: not possible, {option.against}"
    price = words.cost(option.cost, evidence.money.unit)
    figures = (
        words.NOT_MEASURED if option.time_ms is None and option.cost is None else f"{option.time}, {price}"
    )
    against = f"; {option.against}" if option.against else ""
    return f"{option.what} ({figures}{against})"


def _why(reason: str | None, evidence: Evidence, unsaid: Sequence[Finding]) -> str:
    declared = evidence.plan.base
    hope = "speculative: " if declared is not None and declared.speculative else ""
    text = f"{hope}{reason}" if reason is not None else "base.reason is empty"
    missing = [finding.field for finding in unsaid if finding.field != "base.reason"]
    return f"{text}; still to be said: {', '.join(dict.fromkeys(missing))}" if missing else text
