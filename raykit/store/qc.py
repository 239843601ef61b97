"""Examinations in the store: each question has one request and at most one receipt, however often it was tried.

Everything is created once and never replaced. To claim attempt n is to create `claims/<request>/<n>.json`: whoever
loses that race looks for other work. To publish is to create `receipts/<request>.json`: equal bytes are success, other
bytes are a conflict, which is kept whole beside the receipt that was there first.

A suite, a roster and a picture are what the digest in their key says. A receipt is what an attempt says that it took to
make: `took` holds its digest, and is written just before. What is said of attempts is sealed as a log's entries are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from raykit.errors import ConflictError, CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.pauses import Acts
from raykit.qc.backlog import Backlog, Said, Standing, Wanted, backlog, stand
from raykit.records import (
    Artifact,
    Claim,
    Conflict,
    Failure,
    Place,
    Receipt,
    Request,
    Roster,
    Suite,
    Took,
    Versioned,
)
from raykit.store import layout
from raykit.store.attempts import (
    MAX_RECORD_BYTES,
    Attempt,
    damaged,
    differing,
    parsed,
    read_attempt,
    read_exactly,
    read_frozen,
    say_once,
)
from raykit.store.base import ObjectStore, Put

Published = Literal["written", "already", "conflict"]
"""What came of a receipt: it decided; its very bytes were there; other bytes were there first."""

_KINDS = ("requests", "claims", "failures", "took", "conflicts", "receipts")
"""In the order in which they are listed. An attempt's claim comes before whatever ends it: one that is seen unended was
so when the claims were listed."""

_KEY = re.compile(
    r"(?P<kind>requests|receipts|claims|failures|took|conflicts)/(?P<request>[0-9a-f]{64})(/(?P<n>[1-9]\d*))?\.json"
)

R = TypeVar("R", bound=Versioned)


class Examinations:
    """The examinations of one experiment."""

    def __init__(self, store: ObjectStore, experiment: str) -> None:
        self._store = store
        self.experiment = experiment
        self._attempts: dict[str, Claim | Failure | Took | Conflict] = {}
        """By key, what has been read of attempts: it never changes."""

    # --- what is asked --------------------------------------------------------------------------------------

    def freeze(self, suite: Suite, roster: Roster) -> None:
        """Keep a suite and its roster. Safe to repeat.

        Raises:
            ConflictError: a key holds other bytes.
            UnknownOutcomeError: a reply was lost and could not be read back.
            StoreUnavailableError: the store did not take it.
        """
        self._store.put_new(layout.qc_roster(self.experiment, roster.digest), roster.to_bytes())
        self._store.put_new(layout.qc_suite(self.experiment, suite.digest), suite.to_bytes())

    def suite(self, digest: str) -> Suite:
        """A suite as it was frozen.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        return self._frozen(layout.qc_suite(self.experiment, digest), digest, Suite)

    def roster(self, digest: str) -> Roster:
        """A roster as it was frozen.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        return self._frozen(layout.qc_roster(self.experiment, digest), digest, Roster)

    def ask(self, request: Request) -> bool:
        """Write a request; False if it was there: the same question is asked once, by whichever run comes first.

        Raises:
            CorruptError: another question is there under its name.
            UnknownOutcomeError: the reply was lost and could not be read back; ask again.
            StoreUnavailableError: the store did not take it.
        """
        try:
            stored = self._store.put_new(layout.qc_request(self.experiment, request.id), request.to_bytes())
        except ConflictError:
            self.request(request.id)  # two runs have come to the same weights
            return False
        return stored.outcome is Put.WRITTEN

    def request(self, id: str) -> Request:
        """A request.

        Raises:
            NotFoundError: there is none.
            CorruptError: it is not the question that its name says.
            StoreUnavailableError: the store did not answer.
        """
        key = layout.qc_request(self.experiment, id)
        request = self._read(key, Request)
        if request.id != id:
            raise damaged(key, "is another question", "I3")
        return request

    # --- who is at it ---------------------------------------------------------------------------------------

    def claim(
        self,
        request: str,
        n: int,
        *,
        worker: str,
        place: Place,
        at: float,
        deadline_s: float,
        lease: str | None = None,
    ) -> Claim | None:
        """Take attempt `n`, one more than there were; None if another worker was faster.

        Raises:
            UnknownOutcomeError: the reply was lost and could not be read back: look again before working.
            StoreUnavailableError: the store did not take it.
        """
        claim = Claim(
            request=request, n=n, worker=worker, place=place, at=at, deadline_s=deadline_s, lease=lease
        )
        key = layout.qc_attempt(self.experiment, "claims", request, n)
        return claim if say_once(self._store, key, claim) else None

    def fail(self, failure: Failure) -> bool:
        """Say that an attempt came to nothing; False if somebody else has said something of it before.

        Raises:
            UnknownOutcomeError: the reply was lost and could not be read back; say it again.
            StoreUnavailableError: the store did not take it.
        """
        key = layout.qc_attempt(self.experiment, "failures", failure.request, failure.n)
        return say_once(self._store, key, failure)

    # --- what was found -------------------------------------------------------------------------------------

    def publish(self, receipt: Receipt, pictures: Mapping[str, bytes], took: Took) -> Published:
        """Publish what an attempt found: pictures first, then what it took, then the receipt, which decides.

        `pictures` are the bytes of the receipt's artifacts, by name. Safe to repeat with the same bytes.

        Raises:
            CorruptError: a picture is not what the receipt says, or the receipt that was there first is damaged.
            ConflictError: the key of a picture holds other bytes.
            UnknownOutcomeError: a reply was lost and could not be read back; publish again.
            StoreUnavailableError: the store did not take it.
        """
        for artifact in receipt.artifacts:
            self._show(receipt, artifact, pictures.get(artifact.name, b""))
        say_once(self._store, layout.qc_attempt(self.experiment, "took", took.request, took.n), took)
        key = layout.qc_receipt(self.experiment, receipt.request)
        try:
            stored = self._store.put_new(key, receipt.to_bytes())
        except ConflictError:
            first = self.receipt(receipt.request)
            assert first is not None
            say_once(
                self._store,
                layout.qc_attempt(self.experiment, "conflicts", took.request, took.n),
                Conflict(
                    request=took.request,
                    n=took.n,
                    worker=took.worker,
                    receipt=first.digest,
                    differs=differing(first, receipt),
                    other=receipt.plain(),
                ),
            )
            return "conflict"
        return "written" if stored.outcome is Put.WRITTEN else "already"

    def receipt(self, request: str) -> Receipt | None:
        """The receipt that decided; None if there is none yet.

        Raises:
            CorruptError: it is of another question.
            StoreUnavailableError: the store did not answer.
        """
        key = layout.qc_receipt(self.experiment, request)
        try:
            receipt = self._read(key, Receipt)
        except NotFoundError:
            return None
        if receipt.request != request:
            raise damaged(key, "is of another question", "I3")
        return receipt

    def artifact(self, receipt: Receipt, artifact: Artifact) -> bytes:
        """The bytes of a picture.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        key = self.artifact_key(receipt, artifact)
        return read_exactly(self._store, key, artifact.sha256, max_bytes=artifact.size_bytes)

    def artifact_key(self, receipt: Receipt, artifact: Artifact) -> str:
        """Where a picture lies: its name in the store is its content."""
        suffix = artifact.name.rpartition(".")[2]
        return layout.qc_artifact(self.experiment, receipt.request, f"{artifact.sha256}.{suffix}")

    # --- how far everything is ------------------------------------------------------------------------------

    def said(self, *, known: Mapping[str, Receipt] | None = None) -> dict[str, Said]:
        """All that is written, by request. `known` are receipts that were read before: they never change.

        Raises:
            CorruptError: a record is damaged, or is of another request or attempt than its key says.
            StoreUnavailableError: the store did not answer.
        """
        keys: dict[str, dict[str, list[tuple[int, str]]]] = defaultdict(lambda: defaultdict(list))
        prefix = layout.qc(self.experiment)
        for kind in _KINDS:
            for listed in self._store.list(f"{prefix}/{kind}"):
                found = _KEY.fullmatch(listed.key.removeprefix(prefix + "/"))
                if found is not None:
                    keys[found["request"]][kind].append((int(found["n"] or 0), listed.key))
        return {request: self._said(request, there, known or {}) for request, there in keys.items()}

    def _said(
        self, request: str, there: Mapping[str, list[tuple[int, str]]], known: Mapping[str, Receipt]
    ) -> Said:
        receipt = known.get(request)
        if receipt is None and there["receipts"]:
            receipt = self.receipt(request)
        return Said(
            asked=bool(there["requests"]),
            claims=self._all(request, there["claims"], Claim),
            failures=self._all(request, there["failures"], Failure),
            took=self._all(request, there["took"], Took),
            conflicts=self._all(request, there["conflicts"], Conflict),
            receipt=receipt,
        )

    def _all(
        self, request: str, keys: Iterable[tuple[int, str]], record: type[Attempt]
    ) -> tuple[Attempt, ...]:
        """What is said of the attempts at a request, in their order."""
        return tuple(self._attempt(request, n, key, record) for n, key in sorted(keys))

    def _attempt(self, request: str, n: int, key: str, record: type[Attempt]) -> Attempt:
        kept = self._attempts.get(key)
        if isinstance(kept, record):
            return kept
        read = read_attempt(
            self._store.get(key, max_bytes=MAX_RECORD_BYTES), record, key, request=request, n=n
        )
        self._attempts[key] = read
        return read

    # --- plumbing -------------------------------------------------------------------------------------------

    def _frozen(self, key: str, digest: str, record: type[R]) -> R:
        return read_frozen(self._store, key, digest, record)

    def _read(self, key: str, record: type[R]) -> R:
        return parsed(record, self._store.get(key, max_bytes=MAX_RECORD_BYTES), key)

    def _show(self, receipt: Receipt, artifact: Artifact, data: bytes) -> None:
        if (sha256(data), len(data)) != (artifact.sha256, artifact.size_bytes):
            raise CorruptError(f"{artifact.name} is not the picture that the receipt names", rule="I1")
        self._store.put_new(self.artifact_key(receipt, artifact), data)


def unbound(receipt: Receipt, request: Request, suite: Suite, reference: str | None) -> tuple[str, ...]:
    """The fields of a receipt that say it answers another question than `request`, asked with `suite`.

    `reference` is the digest of the receipt at update 0; None at update 0.
    """
    wanted = {
        "request": request.id,
        "experiment": request.experiment,
        "run": request.run,
        "update": request.update,
        "checkpoint": request.checkpoint,
        "suite": suite.digest,
        "roster": suite.roster,
        "code": suite.code,
        "config": suite.config,
        "revision": suite.revision,
        "reference": reference,
    }
    return tuple(name for name, value in wanted.items() if getattr(receipt, name) != value)


def miscounted(receipt: Receipt) -> bool:
    """Whether the strata of a receipt do not add up to all of its units."""
    names = ("requested", "scored", "failed", "missing", "empty")
    return any(
        (getattr(receipt.units, name) or 0)
        != sum(getattr(tally, name) or 0 for tally in receipt.strata.values())
        for name in names
    )


# --- with what people have said -------------------------------------------------------------------------------


def read_backlog(
    examinations: Examinations,
    suite: str,
    wanted: Iterable[Wanted],
    *,
    run: str,
    acts: Acts,
    tries: int,
    now: float,
    also: Iterable[Wanted] = (),
    known: Mapping[str, Receipt] | None = None,
    said: Mapping[str, Said] | None = None,
) -> Backlog:
    """How far every required checkpoint is. `known` are receipts that were read before, by request.

    `also` are checkpoints that the cadence does not ask for: each of them is required once a person has asked for it.
    `said` is all that is written, where that was listed for several runs at once.

    Raises:
        CorruptError: a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    written = examinations.said(known=known) if said is None else said
    forgiven_before = acts.cleared_at.get(f"contract:{suite}", 0.0)

    def request_of(each: Wanted) -> Request:
        return Request(
            experiment=examinations.experiment,
            run=run,
            update=each.update,
            checkpoint=each.checkpoint,
            suite=suite,
        )

    def standing(each: Wanted) -> Standing:
        request = request_of(each)
        return stand(
            each,
            request,
            written.get(request.id, Said()),
            reviews=acts.reviews,
            tries=tries,
            forgiven=acts.retried.get(request.id, 0),
            forgiven_before=forgiven_before,
            now=now,
        )

    asked = [each for each in also if request_of(each).id in written]
    standings = [standing(each) for each in sorted([*wanted, *asked], key=lambda each: each.update)]
    counting = {each.request.id for each in standings}
    receipts = [
        each.receipt for id, each in written.items() if each.receipt is not None and id not in counting
    ]
    others = [
        standing(Wanted(update=receipt.update, checkpoint=receipt.checkpoint, key="", since=now))
        for receipt in sorted(receipts, key=lambda receipt: receipt.update)
        if receipt.suite == suite and receipt.run == run
    ]
    return backlog(suite, standings, others)
