"""Attempts at units of work (QC requests, units of synthetic sets): claims without holes, and what is said of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from raykit.errors import CorruptError
from raykit.ids import canonical
from raykit.records import Claim, Conflict, Failure, Receipt, Took, UnitReceipt
from raykit.store import layout
from raykit.store.attempts import Attempt, differing, read_attempt
from raykit.store.check.view import View
from raykit.store.qc import Examinations

R = TypeVar("R", Receipt, UnitReceipt)

Key = Callable[[str, str, int], str]
"""The key of what is said of an attempt: by kind, unit of work, and number."""


class File(NamedTuple):
    """A file that says something of an attempt."""

    key: str
    kind: str
    """As the store's folder is called: `claims`, `failures`, `took` or `conflicts`."""
    unit: str
    """The unit of work, as it is named in the key."""
    n: int
    request: str
    """The identity of the unit of work."""


class Attempts:
    """All attempts at the units of one experiment, or of one contract."""

    def __init__(self, view: View, files: Iterable[File], key: Key) -> None:
        self._view = view
        self._key = key
        self.damaged: set[str] = set()
        """Units of which something could not be read."""
        self._gone: set[str] = set()
        by_kind: dict[str, list[File]] = defaultdict(list)
        for file in files:
            by_kind[file.kind].append(file)
        self.claims = self._read(by_kind["claims"], Claim)
        self.failures = self._read(by_kind["failures"], Failure)
        self.took = self._read(by_kind["took"], Took)
        self.conflicts = self._read(by_kind["conflicts"], Conflict)

    @property
    def units(self) -> set[str]:
        """Those that somebody has been at."""
        every = (self.claims, self.failures, self.took, self.conflicts)
        return {unit for of in every for unit in of} | self.damaged

    def check_order(self) -> None:
        """Hold the attempts against each other."""
        for unit, claims in self.claims.items():
            self._numbered(unit, claims)
        for kind, of in (
            ("failures", self.failures),
            ("took", self.took),
            ("conflicts", self.conflicts),
        ):
            for unit, records in of.items():
                for n, record in records.items():
                    self._of_a_claim(kind, unit, n, record)

    def other(self, unit: str, conflict: Conflict, receipt: R | None, record: type[R]) -> R | None:
        """The other receipt of a conflict with `receipt`, which decided; None if it is not what it should be."""
        view, key = self._view, self._key("conflicts", unit, conflict.n)
        if receipt is None or unit in self.damaged:
            if unit not in self.damaged:
                view.find(key, "a conflict is with the receipt that decided", "there is no receipt", "I3")
            return None
        try:
            other = record.from_bytes(canonical(conflict.other), key)
        except CorruptError as error:
            view.find(key, "a conflict holds the other receipt whole", error.message, "I3")
            return None
        if conflict.receipt != receipt.digest or conflict.differs != differing(receipt, other):
            view.find(key, "a conflict is with the receipt that decided", "it is with another one", "I3")
            return None
        return other

    def _read(self, files: Iterable[File], record: type[Attempt]) -> dict[str, dict[int, Attempt]]:
        """By unit and attempt: what can be read of them."""
        found: dict[str, dict[int, Attempt]] = defaultdict(dict)
        for file in files:
            data = self._view.get(file.key)
            try:
                found[file.unit][file.n] = read_attempt(
                    data, record, file.key, request=file.request, n=file.n
                )
            except CorruptError as error:
                self._view.find(file.key, "what is said of an attempt", error.message, "I2")
                self._view.name([file.key])
                self.damaged.add(file.unit)
        return found

    def _numbered(self, unit: str, claims: Mapping[int, Claim]) -> None:
        """Attempt `n` was claimed once the one before it was said to have failed."""
        self._view.name(self._key("claims", unit, n) for n in claims)
        if unit in self.damaged:
            return
        for n in range(1, max(claims, default=0)):
            for kind in ("claims", "failures"):
                if self._missing(kind, unit, n, "an attempt begins once the one before has failed"):
                    return

    def _of_a_claim(self, kind: str, unit: str, n: int, record: Failure | Took | Conflict) -> None:
        key = self._key(kind, unit, n)
        if not isinstance(record, Took):
            self._view.name([key])
        claim = self.claims.get(unit, {}).get(n)
        rule = "only who has claimed an attempt ends it"
        if claim is None:
            self._missing("claims", unit, n, rule)
        elif claim.worker != record.worker:
            self._view.find(key, rule, f"{claim.worker} claimed it, not {record.worker}", "I3")

    def _missing(self, kind: str, unit: str, n: int, rule: str) -> bool:
        """Whether something is not there that others follow from; found once."""
        key = self._key(kind, unit, n)
        if key in self._gone:
            return True
        if self._view.missing(key, rule, "I3"):
            self._gone.add(key)
            return True
        return False


# --- at QC requests -------------------------------------------------------------------------------------------

_QC_KINDS = {
    "qc-claim": "claims",
    "qc-failure": "failures",
    "qc-took": "took",
    "qc-conflict": "conflicts",
}


class QcAttempts(Attempts):
    """All attempts at the requests of one experiment, by request."""

    def __init__(self, view: View, experiment: str) -> None:
        self._experiment = experiment
        files = (
            File(key, _QC_KINDS[known.kind], parts["request"], int(parts["try"]), parts["request"])
            for key, known in view.known.items()
            if known.kind in _QC_KINDS and (parts := known.parts)["experiment"] == experiment
        )
        super().__init__(
            view, files, lambda kind, request, n: layout.qc_attempt(experiment, kind, request, n)
        )

    def made(self, request: str) -> Sequence[Took]:
        """What its attempts say that they have made."""
        return list(self.took.get(request, {}).values())

    def that_made(self, receipt: str) -> Iterator[str]:
        """The requests at which somebody says to have made the receipt of this digest."""
        for request, took in self.took.items():
            if any(each.receipt == receipt for each in took.values()):
                yield request

    def check(self, receipts: Mapping[str, Receipt]) -> None:
        """Hold the attempts against each other, and against the receipts that decided."""
        self.check_order()
        for request in receipts:
            # Without a receipt, what an attempt says that it took is what a killed one left.
            self._view.name(self._key("took", request, n) for n in self.took.get(request, {}))
        for request, conflicts in self.conflicts.items():
            for conflict in conflicts.values():
                self._conflict(conflict, receipts.get(request))

    def _conflict(self, conflict: Conflict, receipt: Receipt | None) -> None:
        other = self.other(conflict.request, conflict, receipt, Receipt)
        if other is None:
            return
        kept = Examinations(self._view.store, self._experiment)
        self._view.name(kept.artifact_key(other, artifact) for artifact in other.artifacts)
        took = self.took.get(conflict.request, {}).get(conflict.n)
        if took is None or took.receipt != other.digest:
            key = self._key("conflicts", conflict.request, conflict.n)
            self._view.find(key, "a conflict is what its attempt has made", "that made another one", "I3")
