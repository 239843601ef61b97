"""What the pick of a search is worth, held against the setting that is used today, and against what seeds alone do."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raykit.read.search.row import RowRead
from raykit.records import Picked


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The pick held against the incumbent: only observed, and never more than that."""

    incumbent: int
    """The row of the setting that is used today: the first that the plan names."""
    incumbent_value: float | None
    """Over its seeds: the mean. None if it has none."""
    incumbent_seeds: int
    gain: float | None
    """By how much the pick is better, in the metric; below 0 if it is worse."""
    worthwhile: float | None
    """The smallest difference that would change what is done, in the same metric."""
    noise: float | None
    """The largest spread over seeds of one setting: what a difference has to be above. None if nothing was repeated."""
    repeated: int
    """How many settings were run with more than one seed."""
    same: bool
    """The incumbent itself was picked."""

    @property
    def inside_noise(self) -> bool | None:
        """Whether the difference is no larger than that between seeds of one setting; None if there is none, or nobody
        knows."""
        if self.same or self.gain is None or self.noise is None:
            return None
        return abs(self.gain) <= self.noise

    @property
    def worth_it(self) -> bool:
        """It is better by what matters, and by more than seeds differ."""
        return (
            self.gain is not None
            and self.worthwhile is not None
            and self.gain >= self.worthwhile
            and self.inside_noise is False
        )

    @property
    def words(self) -> str:
        """What the difference comes to, in one sentence."""
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.same:
            yield f"the incumbent, row {self.incumbent}, is the best that was observed"
            return
        if self.gain is None or self.incumbent_value is None:
            yield f"the incumbent, row {self.incumbent}, has no value: nothing says that the pick is better"
            return
        way = "better" if self.gain > 0 else "worse"
        seeds = "one seed" if self.incumbent_seeds == 1 else f"{self.incumbent_seeds} seeds"
        held = f"row {self.incumbent}: {self.incumbent_value:.4g}, {seeds}"
        yield f"{abs(self.gain):.4g} {way} than the incumbent ({held})" if self.gain else f"as good as {held}"
        if self.noise is None:
            yield "how far seeds alone differ is not known: nothing was repeated"
        elif self.inside_noise:
            yield f"INSIDE THE NOISE: seeds of one setting differ by up to {self.noise:.4g}"
        else:
            yield f"seeds of one setting differ by up to {self.noise:.4g}"
        if self.worthwhile is None:
            yield "the plan says of no difference in this metric that it matters"
        elif self.gain >= self.worthwhile:
            yield f"worthwhile from {self.worthwhile:g}"
        else:
            yield f"less than what is worthwhile, {self.worthwhile:g}"

    def plain(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "incumbent": self.incumbent,
            "incumbent_value": self.incumbent_value,
            "incumbent_seeds": self.incumbent_seeds,
            "gain": self.gain,
            "worthwhile": self.worthwhile,
            "noise": self.noise,
            "repeated_settings": self.repeated,
            "inside_noise": self.inside_noise,
            "worth_it": self.worth_it,
            "same": self.same,
            "words": self.words,
        }


def verdict_of(
    rows: Sequence[RowRead],
    picked: Picked | None,
    *,
    mode: Literal["min", "max"],
    incumbent: int | None,
    worthwhile: float | None,
) -> Verdict | None:
    """The pick held against the setting that is used today; None without a pick or such a setting."""
    if picked is None or incumbent is None:
        return None
    seeds = _by_setting(rows)
    known = seeds.get(incumbent, ())
    value = statistics.mean(known) if known else None
    gain = None
    if value is not None:
        gain = value - picked.value if mode == "min" else picked.value - value
    repeated = [values for values in seeds.values() if len(values) > 1]
    return Verdict(
        incumbent=incumbent,
        incumbent_value=value,
        incumbent_seeds=len(known),
        gain=gain,
        worthwhile=worthwhile,
        noise=max((max(values) - min(values) for values in repeated), default=None),
        repeated=len(repeated),
        same=picked.row == incumbent,
    )


def _by_setting(rows: Sequence[RowRead]) -> dict[int, tuple[float, ...]]:
    """By trial: the values of all completed rows that have its setting."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.counts and row.value is not None:
            found.setdefault(row.repeats or row.row, []).append(row.value)
    return {trial: tuple(values) for trial, values in found.items()}
