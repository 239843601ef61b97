"""What a failed unit of work means: try it again, put it aside, or stop everyone who works on the same contract. Pure.

A unit is one QC request, or one unit of a synthetic set. Its failures come from separate processes, so that two equal
failures of one unit by two workers say something about the unit or about what all units share, and not about a worker.

A checkpoint is judged by itself (`next_after`), since there are few:

    infrastructure, memory, deadline, lost      bad luck until it has happened `tries` times: then the unit is parked
    recipe, data                                the same signature from a second worker is a shared defect
    corrupt                                     the unit's own bytes: parked once a second worker says the same

A synthetic set has many units, so that all failures of its contract are judged together (`judge`):

    a signature that a unit failed with and got over       intermittent: tried again, then parked; it holds nobody
    the same certain one from two processes at one unit    the unit is poison: parked, as long as it is the only one
    and at two units or more, beyond chance                a shared defect: everyone on the contract stops
    bounds, from two processes, under an exact contract    no chance at all: its rows are the same whoever tries
    a canary unit that came to nothing                     the same
    many parked units                                      the same
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from raykit.ids import digest_of
from raykit.records import FailureKind

Next = Literal["retry", "park", "pause"]

SHARED: frozenset[FailureKind] = frozenset({"recipe", "data"})
"""Kinds that another unit of the same contract would meet, too."""

CERTAIN: frozenset[FailureKind] = SHARED | {"corrupt", "bounds"}
"""Kinds that come again whoever tries."""

CHANCE = 1e-4
"""Failures of several units are laid to one defect only if chance explains them with at most this probability.

That some units fail once is no evidence: in a long run of a flaky recipe it happens for certain. What tells is that
other processes have tried them again, and that not one has got over it. With `n` units that came to their receipts and
`u` that have failed alike, the share of attempts that fail by chance is, by the rule of succession,
p = (u + 1) / (n + u + 2); `r` tries again then all fail with the probability p ** r. One unit that gets over it ends
the suspicion for good. A real defect needs eight tries again after few units, four after fifty, two after a thousand.
"""

FLAKY = 0.3
"""The greatest share of attempts that may fail by chance: with few units published, the estimate above is of little
worth. What fails more often is broken rather than flaky."""

MANY_PARKED = 8
MANY_SHARE = 0.1
"""Beyond so many parked units, and so large a share of all that were decided, whatever they failed with is no longer
the matter of single units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One failed attempt at a unit, as far as it matters here."""

    kind: FailureKind
    signature: str
    worker: str


def signature(kind: FailureKind, error: str, where: Iterable[str] = ()) -> str:
    """What two failures with one cause have in common: the kind, the type of error, and the lines that raised it.

    Messages are left out: they hold numbers and addresses that differ from attempt to attempt.
    """
    return digest_of({"kind": kind, "error": error, "where": list(where)})


def next_after(failures: Sequence[Failed], *, tries: int) -> Next:
    """What is done about a unit that has failed so often and has no receipt."""
    if confirmed(failures) is not None:
        return "pause" if failures[-1].kind in SHARED else "park"
    return "retry" if len(failures) < tries else "park"


def confirmed(failures: Sequence[Failed]) -> Failed | None:
    """The newest failure, if it is certain to come again: another worker has met the very same."""
    if not failures or failures[-1].kind not in CERTAIN:
        return None
    newest = failures[-1]
    same = {failed.worker for failed in failures if failed.signature == newest.signature}
    return newest if len(same) > 1 else None


# --- all failures of a contract together --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One failed attempt at a unit of a set."""

    unit: int
    failed: Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Why everyone on a contract has to stop."""

    why: Literal["shared", "canary", "parked"]
    """The same failure of several units; a unit of the canary came to nothing; too many units are parked."""
    signature: str | None
    """What they have in common; None if they are only many."""
    kind: FailureKind | None
    units: tuple[int, ...]
    """In order: those that have not come to a receipt because of it."""
    failures: int
    """How many attempts at them have failed."""
    workers: int
    """In how many processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What all failures of a contract come to."""

    intermittent: frozenset[str] = frozenset()
    """Signatures that say nothing: a unit that failed with one has come to its receipt since."""
    parked: frozenset[int] = frozenset()
    """Units that are not tried any more, unless a person says so."""
    suspected: frozenset[int] = frozenset()
    """Units that others try before anything new is started: they, or what all share, may be defective."""
    doubted: Mapping[int, str] = field(default_factory=dict)
    """By parked unit: a certain signature that nothing has refuted. It may be the first unit of many."""
    shared: Shared | None = None


def intermittent(failures: Iterable[Attempted], published: Container[int]) -> frozenset[str]:
    """The signatures that some unit failed with before it came to its receipt."""
    return frozenset(each.failed.signature for each in failures if each.unit in published)


def judge(
    failures: Sequence[Attempted],
    *,
    published: Container[int],
    published_count: int,
    given_up: Collection[int] = (),
    canary: Container[int] = (),
    tries: int,
    exact: bool = False,
) -> Judged:
    """What the failures of a contract mean, those that count, in any order.

    `published` tells of the failed units which have a receipt, and `published_count` how many units have one in all;
    `canary` are the first units as long as they have not been judged. Under an `exact` contract a unit has the same
    rows in every process: if two of them have found these out of bounds, a third one would.
    """
    flaky = intermittent(failures, published)
    by_unit: dict[int, list[Failed]] = defaultdict(list)
    for each in failures:
        if each.unit not in published and each.unit not in given_up:
            by_unit[each.unit].append(each.failed)
    telling = {unit: _telling(found, flaky) for unit, found in by_unit.items()}
    alike: dict[str, set[int]] = defaultdict(set)
    for unit, found in telling.items():
        for failed in found:
            alike[failed.signature].add(unit)
    out = {unit for unit, found in telling.items() if exact and _out_of_bounds(found)}
    parked = frozenset(
        unit
        for unit, found in by_unit.items()
        if len(found) >= tries or unit in out or (unit not in canary and _poison(telling[unit], alike))
    )
    return Judged(
        intermittent=flaky,
        parked=parked,
        suspected=frozenset(unit for unit, found in telling.items() if found and unit not in parked),
        doubted={unit: telling[unit][-1].signature for unit in parked if telling[unit]},
        shared=_canary(by_unit, parked, flaky, canary)
        or _many_out_of_bounds(telling, out)
        or shared(by_unit, alike, published_count=published_count)
        or _many(by_unit, parked, published_count + len(given_up)),
    )


def shared(
    by_unit: Mapping[int, Sequence[Failed]], alike: Mapping[str, Collection[int]], *, published_count: int
) -> Shared | None:
    """The defect that several units share beyond chance; None if there is none.

    `by_unit` has the failures of each unit that has not come to its receipt, and `alike` the units of each signature
    that is certain and not intermittent.
    """
    for signature_, units in sorted(alike.items()):
        again = [len(_workers(by_unit[unit], signature_)) - 1 for unit in units]
        if len(units) > 1 and by_chance(again, published=published_count) <= CHANCE:
            return _shared(
                "shared", [f for u in units for f in by_unit[u] if f.signature == signature_], units
            )
    return None


def by_chance(again: Iterable[int], *, published: int) -> float:
    """The probability that all tries again fail by bad luck, `again` of each unit that has failed alike: see `CHANCE`.

    Of the units that were tried again most often, as many as say most: one more that fails never weakens what is known.
    """
    found, so_far = 1.0, 0
    for units, more in enumerate(sorted(again, reverse=True), start=1):
        so_far += more
        found = min(found, min(FLAKY, (units + 1) / (published + units + 2)) ** so_far)
    return found


def _telling(failures: Sequence[Failed], flaky: Container[str]) -> list[Failed]:
    """The failures that say something of the unit, or of what all units share."""
    return [f for f in failures if f.kind in CERTAIN and f.signature not in flaky]


def _workers(failures: Iterable[Failed], signature_: str) -> set[str]:
    return {failed.worker for failed in failures if failed.signature == signature_}


def _poison(telling: Sequence[Failed], alike: Mapping[str, Collection[int]]) -> bool:
    """Two processes have met the very same at this unit, and at no other one."""
    return any(
        len(alike[signature_]) == 1 and len(_workers(telling, signature_)) > 1
        for signature_ in {failed.signature for failed in telling}
    )


def _out_of_bounds(telling: Sequence[Failed]) -> bool:
    """Two processes have found the rows of this unit out of bounds."""
    return len({failed.worker for failed in telling if failed.kind == "bounds"}) > 1


def _many_out_of_bounds(telling: Mapping[int, Sequence[Failed]], out: Collection[int]) -> Shared | None:
    """One unit may have odd inputs; two say that the set is not what the contract promises."""
    if len(out) < 2:
        return None
    return _shared("shared", [f for unit in sorted(out) for f in telling[unit] if f.kind == "bounds"], out)


def _canary(
    by_unit: Mapping[int, Sequence[Failed]],
    parked: Iterable[int],
    flaky: Container[str],
    canary: Container[int],
) -> Shared | None:
    """A unit of the canary came to nothing, and not only by what others have got over."""
    for unit in sorted(parked):
        found = [failed for failed in by_unit[unit] if failed.signature not in flaky]
        if unit in canary and found:
            return _shared("canary", [f for f in found if f.signature == found[-1].signature], (unit,))
    return None


def _many(by_unit: Mapping[int, Sequence[Failed]], parked: Collection[int], others: int) -> Shared | None:
    decided = len(parked) + others
    if len(parked) < MANY_PARKED or len(parked) <= MANY_SHARE * decided:
        return None
    found = [failed for unit in parked for failed in by_unit[unit]]
    return _shared("parked", found, parked)


def _shared(
    why: Literal["shared", "canary", "parked"], found: Sequence[Failed], units: Iterable[int]
) -> Shared:
    one = found[-1] if len({failed.signature for failed in found}) == 1 else None
    return Shared(
        why=why,
        signature=None if one is None else one.signature,
        kind=None if one is None else one.kind,
        units=tuple(sorted(units)),
        failures=len(found),
        workers=len({failed.worker for failed in found}),
    )
