"""The store side of a pool that makes synthetic rows: how far every unit is, and what has to be said of it.

The workers find their units themselves. Here the canary is judged, defects pause the contract, units that a person gave
up get their receipts, and attempts of workers that are gone are said to be lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from raykit.errors import BudgetError
from raykit.fleet.generate.task import GENERATE, GenerateTask, Terms
from raykit.fleet.metrics import Dashboard, SetFacts
from raykit.fleet.pool.crew import PEAK
from raykit.fleet.pool.desk import Found, Lost, cause_of
from raykit.fleet.pool.lease import Price
from raykit.pauses import Acts, InForce, pause_of
from raykit.records import CanaryPassed, Claim, ExperimentEntry, Record
from raykit.shards.bounds import WAY_ON
from raykit.shards.fan import CanaryFailed, canary_of, most_workers
from raykit.shards.spans import shown
from raykit.shards.standing import Board, heard_of
from raykit.shards.units import canary_of as canary_units_of
from raykit.shards.units import rate, unit_id
from raykit.steer import Unit
from raykit.store.base import ObjectStore
from raykit.store.generation import Listing, Shards
from raykit.store.people import People, pause
from raykit.store.progress import Progress, extended, read_progress, write_snapshot
from raykit.work.ending import failure_of
from raykit.work.failing import Cause

SNAPSHOT_S: Final = 5.0
"""Between two snapshots of what is published."""
SNAPSHOT_SHARE: Final = 20
"""Or so many times what the last one took."""

HEARS_S: Final = 30.0
"""So long the first units wait for what their worker says of them, once they are there. It says so every few seconds;
one that was lost meanwhile never does."""
UNIT: Final = "unit:"
"""In a worker's tally: what one unit of the canary took, in milliseconds."""

Afford = Callable[[CanaryPassed, int], None]
"""Raises a `BudgetError` if the rest of the set, in thousandths of it, does not fit what is left for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What there is to make a set with."""

    slots: int
    price: Price
    setup_ms: int
    """What one worker takes to be ready."""
    guess_ms: int = 1
    """What one unit took before the contract was frozen: all that is known of units that a killed launch has made."""


class GenerateDesk:
    """What one pool reads and writes. Used by one thread. A `Desk`."""

    def __init__(
        self, store: ObjectStore, terms: Terms, means: Means, launch: str, *, afford: Afford
    ) -> None:
        self.board: Board | None = None
        """As of the newest look."""
        self.found: Found | None = None
        """What the pool has to know of it."""
        self.refused: BudgetError | None = None
        """What the canary has projected does not fit what is left."""
        self.canary_failed: CanaryFailed | None = None
        """What the canary has shown, if it is not within the bounds."""
        self._store = store
        self._terms = terms
        self._contract = terms.contract
        self._digest = terms.contract.digest
        self._scope = f"contract:{self._digest}"
        self._means = means
        self._afford = afford
        self._by = f"generate {launch}"
        self._shards = Shards(store, terms.contract)
        self._people = People(store, terms.contract.experiment, by=self._by)
        self._acts = Acts()
        self._claimants: set[str] = set()
        self._took: dict[int, int] = {}
        """By unit of the canary that this pool has made: what it took, in milliseconds."""
        self._peak_bytes = 0
        """The most memory that one of its workers has held."""
        self._workers = f"{GENERATE.role}-{launch}-"
        """What the names of this pool's workers begin with."""
        self._hears_until = math.inf
        self._open_claims: tuple[int, ...] = ()
        """Units without a receipt that somebody has been at."""
        self._heard = 0.0
        """Units that this pool's workers say that they have published."""
        self._before = 0
        """Units that were published before this pool's workers began."""
        self._looked_at = 0.0
        self._progress: Progress | None = None
        self._snapshot_at = 0.0

    @property
    def passed(self) -> bool:
        """The canary has passed."""
        return self._digest in self._acts.canaries

    @property
    def published(self) -> int:
        """Units that are known to be published: as of the newest look, or as this pool's workers have said since."""
        board = self.board
        return 0 if board is None else max(board.published_count, self._before + int(self._heard))

    # --- looking ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read how far every unit is.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        self._acts = self._people.refresh()
        self._looked_at = time.time()
        listing = self._shards.listing()
        self._open_claims = tuple(listing.claims)
        self._claimants |= {claim.worker for claims in listing.claims.values() for claim in claims}
        if self.board is None:
            self._before = len(listing.published)
        self.board = self._board_of(listing)
        self.found = self._found(self.board)

    def _board_of(self, listing: Listing) -> Board:
        return Board(
            self._contract,
            listing.published,
            listing.said(),
            tries=self._terms.tries,
            canary_units=self._terms.canary_units,
            heard=heard_of(self._acts, self._digest),
            over=listing.over(),
            before=self.board,
            now=time.time(),
        )

    def _found(self, board: Board) -> Found:
        return Found(
            contract=self._digest,
            looked_at=self._looked_at,
            takable=board.takable_count(),
            open=board.open_count,
            most=most_workers(
                canary_passed=self.passed,
                canary_units=self._terms.canary_units,
                published=board.made_count,
                slots=self._means.slots,
            ),
            unit=self._unit(),
            stop=self._stop(),
            cause=None if self._held is None else self._held.pause.cause,
            counts={str(status): count for status, count in board.counts.items()},
        )

    def _unit(self) -> Unit | None:
        """One unit as it was measured: in the canary, or as this pool has seen the first ones made."""
        passed = self._acts.canaries.get(self._digest)
        if passed is not None:
            return Unit(took_s=passed.took_ms / 1000 / passed.units, peak_bytes=passed.peak_bytes)
        if not self._took:
            return None
        return Unit(took_s=max(self._took.values()) / 1000, peak_bytes=self._peak_bytes)

    def _stop(self) -> str | None:
        """Why nobody may go on."""
        if self._acts.cancelled is not None:
            return self._acts.cancelled.words
        if self._held is not None:
            return self._held.words
        return None if self.refused is None else str(self.refused)

    @property
    def _held(self) -> InForce | None:
        return pause_of(self._acts, self._contract.experiment, "generate", self._digest)

    def follow(self) -> bool:
        """Whether people have paused it or let it go on, or the workers may have made the last unit that was open.

        Raises:
            CorruptError: a log of people's acts is damaged.
            StoreUnavailableError: the store did not answer.
        """
        board = self.board
        if board is None or self.found is None:
            return False
        self._acts = self._people.refresh()
        since = self.published - board.published_count
        return self._stop() != self.found.stop or 0 < board.open_count <= since

    # --- attempts that nobody is at any more ----------------------------------------------------------------

    def bury(self, lost: Mapping[str, Lost], working: Collection[str]) -> tuple[str, ...]:
        """Say of every attempt that came to nothing that it has.

        Raises:
            UnknownOutcomeError: a reply was lost; say it again.
            StoreUnavailableError: the store did not take it.
        """
        said, board = [], self.board
        for unit in self._open_claims:
            claim = None if board is None else board.standing(unit).unended
            if claim is None or claim.worker in working:
                continue
            cause = cause_of(claim, lost)
            if cause is not None and self._fail(unit, claim, cause):
                said.append(f"{self._name} unit {unit:,}, attempt {claim.n}: {cause.message}")
        return tuple(said)

    def claimants(self) -> frozenset[str]:
        """Workers that were seen to have something in hand."""
        return frozenset(self._claimants)

    def _fail(self, unit: int, claim: Claim, cause: Cause) -> bool:
        if self._shards.receipt(unit) is not None:
            return False
        return self._shards.fail(unit, failure_of(claim, cause, said_by=self._by, at=time.time()))

    # --- what has to be said ------------------------------------------------------------------------------------

    def write(self) -> Iterator[str]:
        """Publish what was given up, pause for a defect, judge the canary; a line for people after each.

        Raises:
            CorruptError: a log or a receipt is damaged.
            UnknownOutcomeError: a reply was lost; say it again.
            StoreUnavailableError: the store did not answer.
        """
        board = self.board
        if board is None:
            return
        yield from self._give_up(board)
        if self._held is None and board.defect is not None:
            yield from self._pause(board.defect.words)
        if self._held is None and board.canary_made and not self.passed and self._is_heard():
            yield from self._judge()
        self._keep_snapshot()

    def _give_up(self, board: Board) -> Iterator[str]:
        """Receipts for what a person has given up."""
        said = self._acts.given_up.get(self._digest, {})
        for reason in dict.fromkeys(said[unit].reason for unit in board.given_up):
            units = [unit for unit in board.given_up if said[unit].reason == reason]
            count = self._shards.give_up(units, reason)
            if count:
                yield f"{self._name}: {shown(units)} given up: {reason}"

    def _pause(self, words: str) -> Iterator[str]:
        made = pause(
            self._store, self._scope, cause="defect", reason=words[:2000], person=self._by, at=time.time()
        )
        self._acts = self._people.refresh()
        if made.new:
            yield f"{self._name} pauses: {words}"

    def _judge(self) -> Iterator[str]:
        """Say whether the first units are within the contract's bounds, and what all of them will cost."""
        wanted = canary_units_of(self._contract, self._terms.canary_units)
        took = self._measured(wanted)
        judged = canary_of(
            self._contract,
            self._shards.receipts(self._published_of(wanted)),
            took,
            self._peak_bytes,
            slots=self._means.slots,
            rate=self._means.price.rate,
            margin_permille=self._means.price.margin_permille,
            setup_ms=self._means.setup_ms,
            canary_units=self._terms.canary_units,
        )
        if isinstance(judged, CanaryFailed):
            self.canary_failed = judged
            yield from self._pause(f"{judged.words}; {WAY_ON}")
            return
        if self._record(judged):
            yield f"{self._name}: {canary_words(judged, self._means.slots, measured=bool(self._took))}"
        self.check_money()

    def _is_heard(self) -> bool:
        """Whether this pool's workers have said what those units of the canary took that they have made.

        Money and memory are worked out from that. A worker that is gone by now says nothing any more.
        """
        now = time.monotonic()
        self._hears_until = min(self._hears_until, now + HEARS_S)
        return now >= self._hears_until or all(unit in self._took for unit in self._own_canary())

    def _own_canary(self) -> frozenset[int]:
        """The units of the canary that this pool's workers have published: the newest attempts at them are theirs."""
        newest = {claim.request: claim.worker for claim in self._shards.claims()}  # no other unit has one yet
        wanted = self._published_of(canary_units_of(self._contract, self._terms.canary_units))
        given_up = self._acts.given_up.get(self._digest, {})
        names = {unit: newest.get(unit_id(self._digest, unit), "") for unit in wanted if unit not in given_up}
        return frozenset(unit for unit, name in names.items() if name.startswith(self._workers))

    def _published_of(self, units: Collection[int]) -> list[int]:
        board = self.board
        assert board is not None
        return [unit for unit in units if board.status(unit) == "published"]

    def _measured(self, wanted: Collection[int]) -> dict[int, int]:
        """What the canary took, as far as this pool has made it; else what the producer took when it was asked."""
        took = {unit: self._took[unit] for unit in wanted if unit in self._took}
        return took or dict.fromkeys(wanted, max(1, self._means.guess_ms))

    def _record(self, passed: CanaryPassed) -> bool:
        """Keep what the canary has shown; whether that was written now."""

        def decide(entries: Collection[ExperimentEntry]) -> list[Record]:
            return [] if self._digest in self._people.acts.canaries else [passed]

        written = self._people.log.append(decide, at=time.time()) is not None
        self._acts = self._people.refresh()
        return written

    def check_money(self) -> None:
        """See whether what the canary has projected fits what is left for the rest."""
        passed, board = self._acts.canaries.get(self._digest), self.board
        if passed is None or board is None:
            return
        try:
            self._afford(passed, 1000 * (board.units - board.published_count) // board.units)
        except BudgetError as error:
            self.refused = error

    def _keep_snapshot(self) -> None:
        """Keep what is published, for whoever looks at it without a pool."""
        now = time.monotonic()
        if now < self._snapshot_at:
            return
        before = self._progress
        self._progress = read_progress(self._shards) if before is None else extended(self._shards, before)
        if before is None or len(before.accounts) != len(self._progress.accounts):
            write_snapshot(self._shards, self._progress)
        took_s = time.monotonic() - now
        self._snapshot_at = time.monotonic() + max(SNAPSHOT_S, SNAPSHOT_SHARE * took_s)

    # --- workers --------------------------------------------------------------------------------------------------

    def task(self, *, limit_s: float, lease: str) -> GenerateTask:
        """What a new worker does."""
        return GenerateTask(terms=self._terms, deadline_s=limit_s, lease=lease)

    def publish(self, dashboard: Dashboard, gained: Mapping[str, float], *, fresh: bool) -> None:
        """Tell the dashboard, and note what workers say of the units that they have made."""
        self._note(gained)
        counts = None if self.board is None else {str(each): n for each, n in self.board.counts.items()}
        facts = SetFacts(
            experiment=self._contract.experiment,
            name=self._contract.name,
            counts=counts if fresh else None,
            rows=gained,
            units=gained.get("units", 0.0),
            seconds=gained.get("all_s", 0.0),
        )
        dashboard.publish(facts)

    def _note(self, gained: Mapping[str, float]) -> None:
        self._heard += gained.get("units", 0.0)
        self._peak_bytes += int(gained.get(PEAK, 0.0))
        for name, count in gained.items():
            if name.startswith(UNIT) and count > 0:
                self._took[int(name.removeprefix(UNIT))] = max(1, int(count))

    @property
    def _name(self) -> str:
        return f"{self._contract.experiment}/{self._contract.name}"


# --- in words -------------------------------------------------------------------------------------------------------


def canary_words(passed: CanaryPassed, slots: int, *, measured: bool = True) -> str:
    """What the canary has shown, and what it says of the whole set, in one line; `measured` if by this very launch."""
    rows = passed.rows
    if measured:
        pace = 1000 * rows.requested / passed.took_ms
        said = f", {rate(pace)} rows/s, {passed.peak_bytes / 1e6:,.0f} MB; "
    else:
        said = "; not measured: no worker of this launch has told of them; as the producer was when it was asked, "
    whole = " to ".join(dict.fromkeys(shown_time(ms) for ms in (passed.low_ms, passed.high_ms)))
    workers = "" if slots == 1 else f", on {slots} about {shown_time(passed.whole_ms // slots)}"
    return (
        f"canary passed: {passed.units:,} units, {rows.produced:,} of {rows.requested:,} rows produced"
        f"{said}the whole set takes {whole} on one worker{workers}"
    )


def shown_time(time_ms: int) -> str:
    """`0.4 s`, `12 s`, `3.5 min`, `18.7 h`."""
    for unit, each_ms in (("h", 3_600_000), ("min", 60_000)):
        if time_ms >= 2 * each_ms:
            return f"{time_ms / each_ms:,.1f} {unit}"
    return f"{time_ms / 1000:,.3g} s"
