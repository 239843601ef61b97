"""How far a whole set is: what may be taken, who is at what, what is parked, and what everyone has to stop for.

open        nobody is at it                         parked      tried often enough: a person is needed
claimed     somebody is at it                       published   there is a receipt
retrying    an attempt came to nothing; another     given-up    a person lets its rows count as failed, and its
            one may follow                                      receipt says so once it is there

A board is made of the numbers of the published units, and of what is said of the few others that somebody has been at.
It holds one bit for each unit, and never walks through all of them one by one.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raykit import defects
from raykit.defects import CERTAIN, Attempted, Failed, Judged, Shared
from raykit.ids import Digest
from raykit.pauses import Acts
from raykit.records import Claim, Conflict, Failure, GenerationContract
from raykit.shards.bounds import WAY_ON
from raykit.shards.spans import shown
from raykit.shards.units import canary_of, unit_id, units_of

Status = Literal["open", "claimed", "retrying", "parked", "published", "given-up"]

STATUSES: tuple[Status, ...] = ("open", "claimed", "retrying", "parked", "published", "given-up")

AT_ONCE = 4096
"""So many units are looked at for one that may be taken, before the next ones are."""

MAX_MESSAGE = 300
"""Characters that are shown of a failure's message."""

Attempt = tuple[int, int]
"""A unit, and which attempt at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """All that is written of the attempts at one unit, in their order."""

    claims: Sequence[Claim] = ()
    failures: Sequence[Failure] = ()
    conflicts: Sequence[Conflict] = ()


NOTHING_SAID = Said()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What is said of a contract in the log of its experiment, as far as it matters for its units."""

    canary_passed: bool = False
    """The first units have been judged."""
    retried: Mapping[str, int] = field(default_factory=dict)
    """By identity of a unit: failures through this attempt no longer count."""
    given_up: Collection[int] = ()
    """Units that a person has given up."""
    cleared_at: float = 0.0
    """When the contract was last let go on: failures from before no longer count."""


def heard_of(acts: Acts, contract: Digest) -> Heard:
    """What people have said of one contract."""
    return Heard(
        canary_passed=contract in acts.canaries,
        retried=acts.retried,
        given_up=frozenset(acts.given_up.get(contract, ())),
        cleared_at=acts.cleared_at.get(f"contract:{contract}", 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far one unit is."""

    unit: int
    status: Status
    said: Said = NOTHING_SAID
    counted: Sequence[Failure] = ()
    """The failures that count: no person has let it be tried again since."""
    suspected: bool = False
    """Others try it before anything new is started."""

    @property
    def claim(self) -> Claim | None:
        """The newest attempt."""
        return self.said.claims[-1] if self.said.claims else None

    @property
    def unended(self) -> Claim | None:
        """The newest attempt, if nobody has said that it failed: whoever takes the unit next says so first."""
        return _unended(self.said)

    @property
    def next_n(self) -> int:
        """The number of the next attempt."""
        return max([0, *(c.n for c in self.said.claims), *(f.n for f in self.said.failures)]) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """Why everyone on the contract has to stop, as a person reads it."""

    why: Literal["shared", "canary", "parked", "conflict"]
    units: tuple[int, ...]
    signature: str | None
    message: str
    """Of the first failure that belongs to it; empty for a conflict."""
    words: str


def start_of(worker: str, n: int, units: int) -> int:
    """Where a worker looks for units the `n`-th time: spread over the whole set, and the same whenever it is asked.

    From there on it takes one unit after the other, so that two workers seldom reach for the same one.
    """
    digest = hashlib.sha256(f"{worker}\n{n}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % max(1, units)


class Board:
    """How far a whole set is at one moment. It does not change; a later one is made anew."""

    def __init__(
        self,
        contract: GenerationContract,
        published: Iterable[int],
        said: Mapping[int, Said],
        *,
        tries: int,
        canary_units: int,
        heard: Heard,
        over: Collection[Attempt] = (),
        before: Board | None = None,
        passed_at: float = 0.0,
        now: float,
    ) -> None:
        """`published` are the numbers of the units that have a receipt; `said` is what is written of the others.

        Of published units only failures and conflicts matter. `heard` is what people have said of the contract. `over`
        are attempts whose process is known to be gone. `before` is the board that the caller had until now, and
        `passed_at` when its own newest attempt began that came to a receipt.
        """
        self.contract = contract
        self.units = units_of(contract)
        self._said = said
        self._tries = tries
        self._retried = heard.retried
        self._cleared_at = heard.cleared_at
        self._canary = () if heard.canary_passed else canary_of(contract, canary_units)
        self._published = _mask(published, self.units)
        self.published_count = int(np.count_nonzero(self._published))
        ever_given_up = frozenset(heard.given_up)
        self._given_up = frozenset(unit for unit in ever_given_up if not self._published[unit])
        self.made_count = self.published_count - len(ever_given_up - self._given_up) - self._reused_count()
        """Units that came to their receipt under this very contract."""
        self.in_hand: Mapping[int, Claim] = {
            unit: claim
            for unit, each in said.items()
            if not self._published[unit] and (claim := _unended(each)) is not None
            if (unit, claim.n) not in over and now < claim.at + claim.deadline_s
        }
        """By unit: the attempts that are under way."""
        self.passed_at = max(passed_at, self._seen_to_pass(before))
        """When the newest attempt began of which it is known that it came to a receipt."""
        self._counted = {unit: found for unit, each in said.items() if (found := self._counting(unit, each))}
        self._judged = self._judge(ever_given_up)

    # --- how far --------------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> Mapping[Status, int]:
        """How many units there are of each status."""
        found = Counter(
            self.status(unit)
            for unit in self._said
            if not self._published[unit] and unit not in self._given_up
        )
        found["published"] = self.published_count
        found["given-up"] = len(self._given_up)
        found["open"] = self.units - sum(found[status] for status in STATUSES if status != "open")
        return {status: found[status] for status in STATUSES}

    @property
    def parked(self) -> tuple[int, ...]:
        """Units that were tried often enough: a person lets them be tried again, or gives them up."""
        return tuple(sorted(unit for unit in self._judged.parked if unit not in self.in_hand))

    @property
    def given_up(self) -> tuple[int, ...]:
        """Units that a person has given up, and that have no receipt yet."""
        return tuple(sorted(self._given_up))

    @property
    def suspected(self) -> tuple[int, ...]:
        """Units that others try before anything new is started."""
        return tuple(sorted(self._judged.suspected))

    @property
    def intermittent(self) -> frozenset[str]:
        """Signatures of failures that a unit has got over."""
        return self._judged.intermittent

    @property
    def disputed(self) -> tuple[int, ...]:
        """Units that had two different answers."""
        return tuple(sorted(unit for unit, each in self._said.items() if each.conflicts))

    @property
    def open_count(self) -> int:
        """How many units may still come to a receipt without a person."""
        return self.counts["open"] + self.counts["claimed"] + self.counts["retrying"]

    @property
    def complete(self) -> bool:
        """Every unit has its receipt."""
        return self.published_count == self.units

    @property
    def canary_made(self) -> bool:
        """Nothing is left to be made of the canary, which has not been judged yet."""
        decided = ("published", "parked", "given-up")
        return bool(self._canary) and all(self.status(unit) in decided for unit in self._canary)

    def status(self, unit: int) -> Status:
        """How far one unit is."""
        if self._published[unit]:
            return "published"
        if unit in self._given_up:
            return "given-up"
        if unit in self.in_hand:
            return "claimed"
        if unit in self._judged.parked:
            return "parked"
        tried = unit in self._counted or _unended(self._said.get(unit, NOTHING_SAID)) is not None
        return "retrying" if tried else "open"

    def standing(self, unit: int) -> Standing:
        """All that is known of one unit."""
        return Standing(
            unit=unit,
            status=self.status(unit),
            said=self._said.get(unit, NOTHING_SAID),
            counted=self._counted.get(unit, ()),
            suspected=unit in self._judged.suspected,
        )

    # --- what may be taken ----------------------------------------------------------------------------------

    def takable(self, start: int, *, name: str = "") -> Iterator[int]:
        """The units that worker `name` may take, from `start` on and round to it.

        Suspected units come first, and alone: as long as there is one, nothing new is started. While a parked unit may
        be the first of many, one other unit is tried, and the rest only once that has come to its receipt. Before the
        canary has passed, only its own units are there.
        """
        if self.defect is not None:
            return
        if self._judged.suspected:
            yield from (
                unit for unit in self.suspected if self._free[unit] and not self._failed_by(unit, name)
            )
        elif self._doubted is not None:
            probe = None if self.in_hand else next(self._from(self._doubted), None)
            yield from () if probe is None else (probe,)
        else:
            yield from (unit for unit in self._from(start) if not self._failed_by(unit, name))

    def takable_count(self) -> int:
        """How many workers would find something now."""
        if self.defect is not None:
            return 0
        if self._judged.suspected:
            return sum(bool(self._free[unit]) for unit in self._judged.suspected)
        if self._doubted is not None and self.in_hand:
            return 0
        free = int(np.count_nonzero(self._free))
        return free if self._doubted is None else min(1, free)

    # --- what everyone has to stop for ------------------------------------------------------------------------

    @cached_property
    def defect(self) -> Defect | None:
        """Why everyone on the contract has to stop; None if nobody has to."""
        unheard = self._unheard() if self.contract.exact else ()
        if unheard:
            words = f"{shown(unheard)} had two different answers, under a contract that says it is exact"
            return Defect(why="conflict", units=unheard, signature=None, message="", words=words)
        found = self._judged.shared
        if found is None:
            return None
        message = self._message(found)
        return Defect(
            why=found.why,
            units=found.units,
            signature=found.signature,
            message=message,
            words=_words(found, message, self._tries),
        )

    # --- worked out -------------------------------------------------------------------------------------------

    @cached_property
    def _digest(self) -> str:
        return self.contract.digest

    def _counting(self, unit: int, said: Said) -> tuple[Failure, ...]:
        """The failures that count."""
        if not said.failures:
            return ()
        after = self._retried.get(unit_id(self._digest, unit), 0) if self._retried else 0  # seldom any
        return tuple(each for each in said.failures if each.n > after and each.at >= self._cleared_at)

    def _judge(self, ever_given_up: Collection[int]) -> Judged:
        return defects.judge(
            [
                Attempted(unit=unit, failed=_failed(each))
                for unit, failures in sorted(self._counted.items())
                for each in failures
            ],
            published=frozenset(unit for unit in self._counted if self._published[unit]).difference(
                ever_given_up
            ),
            published_count=self.made_count,
            given_up=ever_given_up,
            canary=self._canary,
            tries=self._tries,
            exact=self.contract.exact,
        )

    def _reused_count(self) -> int:
        spans = () if self.contract.reuses is None else self.contract.reuses.units
        return sum(int(np.count_nonzero(self._published[first : last + 1])) for first, last in spans)

    def _seen_to_pass(self, before: Board | None) -> float:
        if before is None:
            return 0.0
        passed = [claim.at for unit, claim in before.in_hand.items() if self._published[unit]]
        return max([before.passed_at, *passed])

    @cached_property
    def _doubted(self) -> int | None:
        """A parked unit that may be the first of many: no attempt that began later has come to a receipt yet."""
        newest = {
            unit: max(each.at for each in self._counted[unit] if each.signature == signature)
            for unit, signature in self._judged.doubted.items()
        }
        unrefuted = [unit for unit, at in newest.items() if at > self.passed_at]
        return max(unrefuted, key=lambda unit: (newest[unit], unit), default=None)

    @cached_property
    def _free(self) -> NDArray[np.bool_]:
        """For each unit whether anybody may take it, as far as it alone is concerned."""
        free = ~self._published
        free[[*self.in_hand, *self._given_up, *self._judged.parked]] = False
        if self._canary:
            free &= _mask(self._canary, self.units)
        return free

    def _from(self, start: int) -> Iterator[int]:
        """The free units from `start` on, and then those before it."""
        for first, end in ((start, self.units), (0, start)):
            for at in range(first, end, AT_ONCE):
                yield from (np.flatnonzero(self._free[at : min(at + AT_ONCE, end)]) + at).tolist()

    def _failed_by(self, unit: int, name: str) -> bool:
        """Whether this very process has met what comes again whoever tries: another one has to."""
        return any(
            each.worker == name and each.kind in CERTAIN and each.signature not in self._judged.intermittent
            for each in self._counted.get(unit, ())
        )

    def _unheard(self) -> tuple[int, ...]:
        """Units with two answers that have come up since the contract was last let go on."""
        return tuple(unit for unit in self.disputed if self._since_cleared(self._said[unit]))

    def _since_cleared(self, said: Said) -> bool:
        began_at = {claim.n: claim.at for claim in said.claims}
        return any(began_at.get(each.n, math.inf) > self._cleared_at for each in said.conflicts)

    def _message(self, found: Shared) -> str:
        """The first message that belongs to a defect: what came later may only follow from it."""
        failures = [
            each
            for unit in found.units
            for each in self._counted[unit]
            if found.signature in (None, each.signature)
        ]
        return min(failures, key=lambda each: (each.at, each.n)).message


def _failed(failure: Failure) -> Failed:
    return Failed(kind=failure.kind, signature=failure.signature, worker=failure.worker)


def _unended(said: Said) -> Claim | None:
    newest = said.claims[-1] if said.claims else None
    if newest is None or any(failure.n == newest.n for failure in said.failures):
        return None
    return newest


def _mask(units: Iterable[int], of: int) -> NDArray[np.bool_]:
    """One bit for each unit of a set."""
    mask = np.zeros(of, dtype=bool)
    mask[units if isinstance(units, np.ndarray) else np.fromiter(units, dtype=np.int64)] = True
    return mask


def _words(found: Shared, message: str, tries: int) -> str:
    """A defect as one sentence: which units, what they have in common, and what the first of them said."""
    said = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}..."
    alike = "" if found.signature is None else f" ({found.kind}, signature {found.signature[:12]})"
    units = shown(found.units)
    if found.kind == "bounds":
        tries, said = min(tries, found.failures), f"{said}; {WAY_ON}"
    match found.why:
        case "shared":
            often = f"{found.failures:,} times in {found.workers:,} processes"
            return f"{units} failed alike, {often}{alike}: {said}"
        case "canary":
            return f"{units} of the canary came to nothing in {tries:,} tries{alike}: {said}"
        case "parked":
            return f"{len(found.units):,} units are parked{alike}, {units}; the first: {said}"
