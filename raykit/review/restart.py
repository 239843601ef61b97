"""Training from scratch though a trained checkpoint answers to the same decision: what a person is asked first.

Such a restart is a request of its own, never a clause of a plan. It is exempt only if the account stays below the
amount that needs no approval and the weights that are there are kept, and both were verified. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raykit.errors import ApprovalError
from raykit.ids import Digest

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
