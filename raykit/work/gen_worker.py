"""One process that makes units of a synthetic set, one after the other, of those that nobody is at: a `Puller`.

    worker = UnitWorker(store, contract, Rules(tries=3, deadline_s=600, canary_units=2), worker="gen-1", make=make)
    while (turn := worker.turn()).kind not in ENDS:
        ...

All that it knows is in the store, so any number of them may share a set, and each may be killed at any instant. To take
a unit is to create the claim of its next attempt; what decides is the receipt, which all honest attempts make with the
same bytes. Everything is listed now and then only: between two listings a worker walks along units that were free, and
whoever was faster at one is found out by its claim. No Ray and no torch here: what is run is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from raykit import defects
from raykit.errors import GateError, Unknown
from raykit.pauses import Acts, pause_of
from raykit.records import Claim, Failure, GenerationContract, Took, UnitReceipt
from raykit.shards.spans import Numbers, numbers_of
from raykit.shards.standing import NOTHING_SAID, Board, Said, Standing, heard_of, start_of
from raykit.shards.units import canary_of, unit_of, units_of
from raykit.store import layout
from raykit.store.attempts import differing
from raykit.store.base import ObjectStore
from raykit.store.generation import Listing, Shards
from raykit.store.people import People, pause
from raykit.store.place import gone, this_place
from raykit.work.again import AGAIN, START_S, MakeElsewhere, rows_that_differ
from raykit.work.ending import failure_of, why_over
from raykit.work.failing import Cause, cause_of, words
from raykit.work.generated import Made, Make
from raykit.work.puller import Hand, Turn, surely

LOOK_AGAIN_S = 10.0
"""All units are listed again after so long, or once all that were free have been gone through."""

LISTEN_S = 0.25
"""So often a worker reads what people have said: a pause holds before the unit after that."""

HEED_S = 1.0
"""So often it looks whether others have failed since it listed the units."""

SHARE = 0.05
"""Of a worker's time that may go into listing: where that takes long, it is done less often."""

LOST_IN_A_ROW = 3
"""So many units that others were faster at say that the list is old."""

MOST_ROWS = 8
"""So many rows are named."""

SAMPLES = "samples.png"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What bounds the attempts of a worker. None of it changes a row."""

    tries: int
    """Attempts at one unit before it is parked."""
    deadline_s: float
    """An attempt that takes longer counts as lost."""
    canary_units: int
    """The first units, which are made and judged before any other."""
    lease: str | None = None
    """What pays for it; None where nothing is billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """A unit that this process has claimed, and how far it was."""

    standing: Standing
    claim: Claim

    @property
    def words(self) -> str:
        return f"unit {self.standing.unit:,}"


class UnitWorker:
    """Makes units of one contract. `hand` and `tally` may be read from another thread."""

    def __init__(
        self,
        store: ObjectStore,
        contract: GenerationContract,
        rules: Rules,
        *,
        worker: str,
        make: Make,
        again: MakeElsewhere | None = None,
        clock: Callable[[], float] = time.time,
        acts: Callable[[], Acts] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`worker` names this process and no other one ever; `acts` reads what people have said. With `again`, the
        first unit under an exact contract is made by another process, too, before it is published.
        """
        self.hand: Hand | None = None
        self.tally: Mapping[str, float] = {}
        self._store = store
        self._contract = contract
        self._rules = rules
        self._name = worker
        self._place = this_place()
        self._make = make
        self._again = again if contract.exact else None
        """What makes a unit once more; None once that was done."""
        self._clock = clock
        self._sleep = sleep
        self._shards = Shards(store, contract)
        self._digest = self._shards.digest
        self._canary = frozenset(canary_of(contract, rules.canary_units))
        self._scope = f"contract:{self._digest}"
        self._refresh = acts or People(store, contract.experiment, by=worker).refresh
        self._acts = Acts()
        self._listen = _Seldom(LISTEN_S)
        self._heed = _Seldom(HEED_S)
        self._look_again = _Seldom(LOOK_AGAIN_S)
        self._stale = False
        """Others have failed since the units were listed."""
        self._looks = 0
        self._failures = 0
        """So many files of failures there were when it last looked."""
        self._known = _Known()
        self.board: Board | None = None
        """How far the set is, as it was last listed, and with what this process has done since."""
        self._free: Iterator[int] = iter(())
        """What it may take, as the board has it."""
        self._at = 0
        """From which unit on it looks."""
        self._passed_at = 0.0
        """When its own newest attempt began that came to a receipt."""

    def turn(self) -> Turn:
        """Make at most one unit, and say what came of it.

        Raises:
            CorruptError: a log or a record is damaged.
            UnknownOutcomeError: a write was not answered, and nothing is in hand: take another turn.
            StoreUnavailableError: the store did not answer, and nothing is in hand.
        """
        start_s = time.monotonic()
        stopped = self._stopped()
        if stopped is not None:
            return Turn(kind="paused", detail=stopped)
        looked = self._look_if_due()
        taken = self._next()
        if taken is None and not looked:
            self._look()
            taken = self._next()
        if taken is None:
            return self._idle()
        turn = self._work(taken)
        self._count(all_s=time.monotonic() - start_s)
        return turn

    # --- what there is to do --------------------------------------------------------------------------------

    def _stopped(self) -> str | None:
        """Why nothing may be started now."""
        if self._listen.due():
            with self._listen.seldom():
                acts = self._refresh()
            changed = heard_of(acts, self._digest) != heard_of(self._acts, self._digest)
            self._acts = acts
            if changed and self.board is not None:
                self._see()
        if self._acts.cancelled is not None:
            return self._acts.cancelled.words
        held = pause_of(self._acts, self._contract.experiment, "generate", self._digest)
        return None if held is None else held.words

    def _look_if_due(self) -> bool:
        """List all units, if that is due or others have failed since."""
        if self._heed.due():
            with self._heed.seldom():
                failures = self._count_failures()
            self._stale |= failures != self._failures
        early = self._stale and self._look_again.affordable()
        if self.board is not None and not early and not self._look_again.due():
            return False
        self._look()
        return True

    def _count_failures(self) -> int:
        folder = layout.generation(self._contract.experiment, self._contract.name, self._digest)
        return sum(1 for _ in self._store.list(f"{folder}/failures"))

    def _look(self) -> None:
        """List all units anew."""
        with self._look_again.seldom():
            listing = self._shards.listing()
        self._stale = False
        self._failures = sum(len(each) for each in listing.failures.values())
        self._known = _Known(listing)
        self._looks += 1
        self._at = start_of(self._name, self._looks, units_of(self._contract))
        self._see()

    def _see(self) -> None:
        """A new board of what is known."""
        self.board = Board(
            self._contract,
            self._known.published(),
            self._known.said,
            tries=self._rules.tries,
            canary_units=self._rules.canary_units,
            heard=heard_of(self._acts, self._digest),
            over=self._over(),
            before=self.board,
            passed_at=self._passed_at,
            now=self._clock(),
        )
        self._free = self.board.takable(self._at, name=self._name)

    def _over(self) -> set[tuple[int, int]]:
        """Attempts that nobody will end any more: of processes that are gone, and of this one."""
        return {
            (unit, said.claims[-1].n)
            for unit, said in self._known.said.items()
            if said.claims and (said.claims[-1].worker == self._name or gone(said.claims[-1].place))
        }

    def _idle(self) -> Turn:
        """Why there is nothing to take."""
        board = self.board
        assert board is not None
        if board.complete:
            return Turn(kind="nothing")
        if board.defect is not None:
            return Turn(kind="waiting", detail=board.defect.words)
        if board.suspected:
            first = board.standing(board.suspected[0])
            said = f": {first.counted[-1].message}" if first.counted else ""
            return Turn(kind="waiting", detail=f"another process has to try unit {first.unit:,} first{said}")
        if board.canary_made:
            return Turn(kind="waiting", detail="the canary is made, and nobody has judged it yet")
        counts = board.counts
        return Turn(
            kind="waiting" if counts["open"] else "nothing",
            detail=f"units in other hands: {counts['claimed']:,}; parked: {counts['parked']:,}",
        )

    # --- taking it ------------------------------------------------------------------------------------------

    def _next(self) -> _Taken | None:
        """The claim of the next unit that nobody is at; None if there is none left on the board."""
        lost = 0
        while lost < LOST_IN_A_ROW:
            unit = next(self._free, None)
            if unit is None:
                return None
            taken = self._take(unit)
            if taken is not None:
                return taken
            lost += 1
        return None

    def _take(self, unit: int) -> _Taken | None:
        assert self.board is not None
        standing = self.board.standing(unit)
        self._at = unit + 1
        if standing.unended is not None:
            if self._shards.receipt(unit) is not None:
                return None  # published since the units were listed
            if not self._end(unit, standing.unended):
                return None
            standing = self.board.standing(unit)
            if standing.status == "parked":
                return None
        claim = self._surely(
            lambda: self._shards.claim(
                unit,
                standing.next_n,
                worker=self._name,
                place=self._place,
                at=self._clock(),
                deadline_s=self._deadline_s,
                lease=self._rules.lease,
            )
        )
        return None if claim is None else _Taken(standing=standing, claim=claim)

    @property
    def _deadline_s(self) -> float:
        """What the next attempt may take: twice, and the time to come up, where another process makes it as well."""
        once_s = self._rules.deadline_s
        return once_s if self._again is None else 2 * once_s + START_S

    def _end(self, unit: int, claim: Claim) -> bool:
        """Say that an attempt is over which nobody has ended; False if somebody else was faster."""
        cause = why_over(claim, now=math.inf, by=self._name)  # that it is over, the board has said
        assert cause is not None
        failure = self._failure(claim, cause)
        if not self._surely(lambda: self._shards.fail(unit, failure)):
            return False
        self._failures += 1
        self._known.has_failed(unit, failure)
        self._see()
        return True

    def _failure(self, claim: Claim, cause: Cause) -> Failure:
        return failure_of(claim, cause, said_by=self._name, at=self._clock())

    # --- making it ------------------------------------------------------------------------------------------

    def _work(self, taken: _Taken) -> Turn:
        claim, start_s = taken.claim, time.monotonic()
        self.hand = Hand(unit=claim.request, what=taken.words, n=claim.n, since=claim.at)
        try:
            turn = self._made(taken)
        except Exception as error:  # noqa: BLE001  whatever the recipe raises is what came of the attempt
            turn = self._failed(taken, cause_of(error))
        finally:
            self.hand = None
        return replace(turn, what=taken.words, took_ms=_since_ms(start_s))

    def _made(self, taken: _Taken) -> Turn:
        unit, claim, start_s = taken.standing.unit, taken.claim, time.monotonic()
        made = self._make(unit_of(self._contract, unit))
        made_s = time.monotonic() - start_s
        self._require_answer(made.receipt, unit)
        again_s = self._make_again(taken, made)
        published = self._surely(
            lambda: self._shards.publish(made.receipt, made.data, n=claim.n, worker=self._name)
        )
        if published == "conflict":
            return self._stop_for_conflict(made.receipt)
        self._passed_at = max(self._passed_at, claim.at)
        self._known.has_published(unit)
        if published == "written":
            self._count_unit(made, made_s, time.monotonic() - start_s - again_s)
            self._show(made)
        if claim.n > 1:
            self._see()  # what it failed with before says nothing any more
        return Turn(kind="published" if published == "written" else "already")

    def _make_again(self, taken: _Taken, made: Made) -> float:
        """Have the first unit of this process made by another one, before anything of it is published; what that took.

        Raises:
            GateError: the other process came to something else.
            MemoryError: it was ended from outside.
            Unknown: it did not answer, or the store did not.
        """
        if self._again is None:
            return 0.0
        start_s, claim, receipt = time.monotonic(), taken.claim, made.receipt
        self._again.starts = self._asks_elsewhere
        other = self._again(unit_of(self._contract, receipt.unit))
        if other.receipt != receipt:
            raise _not_the_same(self._contract, made, other)
        said = Took(
            request=claim.request,
            n=claim.n,
            worker=self._name,
            receipt=receipt.digest,
            took_ms=_since_ms(start_s),
            peak_bytes=other.peak_bytes,
            at=self._clock(),
        )
        self._surely(lambda: self._shards.made_again(receipt.unit, said))
        self._again = None
        took_s = time.monotonic() - start_s
        self._count(again=1, again_s=took_s)
        return took_s

    def _asks_elsewhere(self) -> None:
        """Another process is coming up, which makes the same: what this one may take begins anew."""
        if self.hand is not None:
            what = self.hand.what.removesuffix(AGAIN) + AGAIN
            self.hand = replace(self.hand, what=what, since=self._clock())

    def _require_answer(self, receipt: UnitReceipt, unit: int) -> None:
        """Let only a receipt pass that is bound to what was asked."""
        if (receipt.contract, receipt.unit) != (self._digest, unit):
            raise GateError(
                f"the receipt is of unit {receipt.unit:,} of {receipt.contract[:12]}",
                field="receipt",
                rule=f"unit {unit:,} of {self._digest[:12]}",
            )

    def _show(self, made: Made) -> None:
        """Keep a picture of the first rows. That it cannot be kept stops nobody."""
        if made.picture is None:
            return
        key = layout.generation_picture(self._contract.experiment, self._contract.name, SAMPLES)
        try:
            self._store.put_derived(key, made.picture)
        except Unknown:
            pass

    def _failed(self, taken: _Taken, cause: Cause) -> Turn:
        """Say that the attempt came to nothing, and what that means."""
        unit, failure = taken.standing.unit, self._failure(taken.claim, cause)
        self._known.has_claimed(unit, taken.claim)
        try:
            first = self._surely(lambda: self._shards.fail(unit, failure))
        except Unknown as error:
            follows = f"not written: {error}"  # it is once the store answers: the claim is open
        else:
            self._known.has_failed(unit, failure)
            self._failures += first
            follows = "" if first else "others said so before"
        self._see()
        assert self.board is not None
        certain = cause.kind in defects.CERTAIN and cause.signature not in self.board.intermittent
        follows = follows or self._follows(self.board, unit)
        return Turn(kind="failed", detail=f"{cause.message}; {follows}", failed=cause.kind, spent=certain)

    @staticmethod
    def _follows(board: Board, unit: int) -> str:
        """What is done about a failure, in words."""
        if board.defect is not None:
            return "everyone on this contract has to stop"
        if board.status(unit) == "parked":
            return "parked until a person lets it be tried again"
        return "another process tries it next" if unit in board.suspected else "it is tried again"

    def _stop_for_conflict(self, receipt: UnitReceipt) -> Turn:
        first = self._shards.receipt(receipt.unit)
        differs = () if first is None else differing(first, receipt)
        reason = f"unit {receipt.unit:,} has two answers, which differ in " + (
            ", ".join(differs) or "their bytes"
        )
        try:
            self._surely(
                lambda: pause(
                    self._store,
                    self._scope,
                    reason=words(reason),
                    person=f"generation worker {self._name}",
                    cause="defect",
                    at=self._clock(),
                )
            )
        except Unknown:
            pass  # the conflict is written: whoever looks next pauses it
        self._listen.now()
        self._stale = True
        return Turn(kind="conflict", detail=reason)

    def _surely(self, act: Callable[[], T]) -> T:
        return surely(act, self._sleep)

    # --- what it has come to --------------------------------------------------------------------------------

    def _count_unit(self, made: Made, made_s: float, took_s: float) -> None:
        rows = made.receipt.rows
        self._count(
            units=1, produced=rows.produced, filtered=rows.filtered, failed=rows.failed, made_s=made_s
        )
        peak = {"peak_bytes": float(max(made.peak_bytes, self.tally.get("peak_bytes", 0)))}
        unit = made.receipt.unit
        one = {f"unit:{unit}": round(1000 * took_s)} if unit in self._canary else {}
        self.tally = {**self.tally, **peak, **one}

    def _count(self, **more: float) -> None:
        """A new mapping each time: another thread may be reading the one that was there."""
        self.tally = {**self.tally, **{name: self.tally.get(name, 0) + value for name, value in more.items()}}


def _not_the_same(contract: GenerationContract, made: Made, other: Made) -> GateError:
    """What two processes have made of one unit is not the same: which rows, as far as it is rows."""
    rows = rows_that_differ(made.data, other.data)
    named = ", ".join(f"{row:,}" for row in rows[:MOST_ROWS]) + (" ..." if len(rows) > MOST_ROWS else "")
    what = f"rows {named}" if rows else ", ".join(differing(made.receipt, other.receipt))
    return GateError(
        f"unit {made.receipt.unit:,} of {contract.name}, made by two processes, differs in {what}",
        field=f"generate.{contract.name}.exact",
        value=True,
        rule="the same rows in every process",
        remedy="draw from rng, and take no hash() of a text, no clock and no randomness of the system; or say exact = "
        "false, where the arithmetic itself is not reproducible",
    )


class _Known:
    """What is known of the units: as they were listed, and what this process has done since."""

    def __init__(self, listing: Listing | None = None) -> None:
        self.said: dict[int, Said] = {} if listing is None else listing.said()
        self._published = numbers_of(()) if listing is None else listing.published
        self._own: list[int] = []

    def published(self) -> Numbers:
        """The units that have a receipt."""
        return np.union1d(self._published, numbers_of(self._own)) if self._own else self._published

    def has_published(self, unit: int) -> None:
        self._own.append(unit)

    def has_claimed(self, unit: int, claim: Claim) -> None:
        said = self.said.get(unit, NOTHING_SAID)
        self.said[unit] = replace(said, claims=(*said.claims, claim))

    def has_failed(self, unit: int, failure: Failure) -> None:
        said = self.said.get(unit, NOTHING_SAID)
        self.said[unit] = replace(said, failures=(*said.failures, failure))


class _Seldom:
    """Something that is done at most so often, and less often where it takes long."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s = self._affordable_s = -math.inf

    def due(self) -> bool:
        return time.monotonic() >= self._due_s

    def affordable(self) -> bool:
        """Whether it may be done before it is due."""
        return time.monotonic() >= self._affordable_s

    def now(self) -> None:
        """It is due."""
        self._due_s = -math.inf

    @contextmanager
    def seldom(self) -> Iterator[None]:
        """It is done now, for as long as the block runs."""
        start_s = time.monotonic()
        yield
        end_s = time.monotonic()
        self._affordable_s = end_s + (end_s - start_s) / SHARE
        self._due_s = max(end_s + self._every_s, self._affordable_s)


def _since_ms(start_s: float) -> int:
    return round(1000 * (time.monotonic() - start_s))
