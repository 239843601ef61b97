"""Which checkpoints of a run could go under the plan's rule, and why each other one stays. Pure; it deletes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule:
    """`run.keep_checkpoints`."""

    last: int
    """The newest that verify."""
    every: int | None = None
    """And each one at a multiple of so many updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One checkpoint, as far as the rule looks at it."""

    update: int
    attempt: int
    manifest: str
    key: str
    size_bytes: int
    counts: bool
    """It is part of the run: no resume has started before it."""
    verifies: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """A checkpoint that stays, and every reason why."""

    point: Point
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What could go, and what stays."""

    goes: tuple[Point, ...]
    stays: tuple[Stays, ...]

    @property
    def size_bytes(self) -> int:
        """What would be free."""
        return sum(point.size_bytes for point in self.goes)


def retention(
    points: Sequence[Point],
    rule: KeepRule | None,
    *,
    needed: Mapping[str, Sequence[str]],
    doubts: Sequence[str] = (),
) -> Retention:
    """Hold every checkpoint of a run, in the order of its log, against the rule.

    `needed` has, by the digest of a manifest, why something else needs it; `doubts` are things that could not be read,
    any of which may need it: under doubt nothing goes.
    """
    by_rule = _by_rule(points, rule)
    goes, stays = [], []
    for n, point in enumerate(points):
        why = (*by_rule.get(n, ()), *needed.get(point.manifest, ()), *doubts)
        if why:
            stays.append(Stays(point=point, why=why))
        else:
            goes.append(point)
    return Retention(goes=tuple(goes), stays=tuple(stays))


def _by_rule(points: Sequence[Point], rule: KeepRule | None) -> dict[int, tuple[str, ...]]:
    """By place: why the rule keeps it."""
    good = [n for n, point in enumerate(points) if point.counts and point.verifies]
    newest = [n for n, point in enumerate(points) if point.counts][-1:]
    last = set(good[-rule.last :]) if rule is not None else set()
    return {
        n: tuple(_reasons(point, rule, newest=n in newest, last=n in last)) for n, point in enumerate(points)
    }


def _reasons(point: Point, rule: KeepRule | None, *, newest: bool, last: bool) -> Iterator[str]:
    if rule is None:
        yield "the plan has no run.keep_checkpoints"
        return
    if newest:
        yield "the newest"
    if last:
        yield f"one of the last {rule.last} that verify"
    if not point.verifies:
        yield "it does not verify: a person looks at it first"
    if not point.counts:
        return
    if point.update == 0:
        yield "update 0: what later ones are compared with"
    elif rule.every is not None and point.update % rule.every == 0:
        yield f"a multiple of {rule.every:,}"
