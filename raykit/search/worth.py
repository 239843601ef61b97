"""What a row is worth: its development metric, by its run's own history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raykit.plan import Selection
from raykit.records import Commit, EvaluationRow


class Worth(NamedTuple):
    """The metric of a row, and where it is from. All of it is None where there is none that is finite."""

    value: float | None = None
    at: int | None = None
    """The update that it is from."""
    checkpoint: str | None = None
    """Digest of the manifest of that update's checkpoint, where there is one."""


NOBODY = "which nobody reports"


def unreported(metric: str, evaluations: Sequence[EvaluationRow]) -> str | None:
    """Why a row can never be worth anything: its first evaluation has not the metric; None if it has.

    Which metrics a recipe reports is known only once it has evaluated.
    """
    name = metric.removeprefix("development.")
    if not evaluations or name in evaluations[0].metrics:
        return None
    known = ", ".join(sorted(evaluations[0].metrics))
    return f"search.metric is {metric}, {NOBODY}: an evaluation of this recipe has {known}"


def is_unreported(detail: str | None) -> bool:
    """Whether a row failed because nobody reports its metric: then every other row would."""
    return detail is not None and NOBODY in detail


def worth_of(
    selection: Selection | None, metric: str, evaluations: Sequence[EvaluationRow], commits: Sequence[Commit]
) -> Worth:
    """The metric at the checkpoint that the plan selects, or at the last evaluation where it selects none.

    A run whose last evaluation is not finite has diverged, and is worth nothing, whatever it had come to before.
    """
    name = metric.removeprefix("development.")
    if not evaluations or evaluations[-1].metrics.get(name) is None:
        return Worth()
    digests = {commit.update: commit.sha256 for commit in commits}
    at = evaluations[-1].update
    if selection is not None:
        selected = _selected(selection, evaluations, digests)
        if selected is None:
            return Worth()
        at = selected
    value = next(row.metrics.get(name) for row in evaluations if row.update == at)
    return Worth() if value is None else Worth(value, at, digests.get(at))


def _selected(
    selection: Selection, evaluations: Sequence[EvaluationRow], digests: Mapping[int, str]
) -> int | None:
    """The update whose checkpoint is taken: of equal ones the first; None if none was evaluated."""
    sign = 1 if selection.mode == "min" else -1
    scored = [
        (sign * score, row.update)
        for row in evaluations
        if row.update in digests and (score := row.metrics.get(selection.metric)) is not None
    ]
    return min(scored)[1] if scored else None
