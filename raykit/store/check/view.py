"""What a check sees of a store: its objects by kind, what has been read of them, and what was found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from raykit.errors import CorruptError
from raykit.ids import MAX_JSON_BYTES, sha256
from raykit.store import layout
from raykit.store.base import Listed, ObjectStore
from raykit.store.check.report import Finding, Report
from raykit.store.commit import digest_of_object

Tell = Callable[[int, int], None]
"""Told how many bytes of how many have been looked at."""


class View:
    """One check of one store. Every key that something in the store stands for has to be named."""

    def __init__(self, store: ObjectStore, *, read_data: bool, tell: Tell) -> None:
        self.store = store
        self.read_data = read_data
        self.sizes: dict[str, int] = {}
        self.known: dict[str, layout.Known] = {}
        self.numbers: dict[str, list[int]] = defaultdict(list)
        """By log: the numbers of its files."""
        self.folders: dict[str, list[str]] = defaultdict(list)
        """By checkpoint: its files."""
        self.attempts: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        """By run: how many objects each attempt has."""
        self.sets: dict[str, dict[tuple[str, str], dict[str, list[str]]]] = defaultdict(dict)
        """By experiment, then by synthetic set and contract: keys by what they are."""
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self._named: set[str] = set()
        self._stranded: set[tuple[str, str]] = set()
        """By experiment and request: examinations whose receipt is damaged or gone."""
        self._tell = tell
        self._done = 0
        self._list()

    def parts(self, *names: str) -> list[tuple[str, ...]]:
        """The different values that these parts have in the keys that have all of them, in order."""
        found = {
            tuple(known.parts[name] for name in names)
            for known in self.known.values()
            if all(name in known.parts for name in names)
        }
        return sorted(found)

    def report(self) -> Report:
        """What was found, once everything has been looked at."""
        self._tell(self.counts["bytes"], self.counts["bytes"])
        unnamed, stranded = tuple(self._orphans()), self._broken()
        return Report(
            url=self.store.url,
            read_data=self.read_data,
            findings=tuple(self.findings),
            orphans=tuple(each for each in unnamed if self._part_of(each.key) not in stranded),
            stranded=tuple(each for each in unnamed if self._part_of(each.key) in stranded),
            unknown=tuple(Listed(key, size) for key, size in self.sizes.items() if key not in self.known),
            counts=dict(self.counts),
        )

    # --- what is there --------------------------------------------------------------------------------------

    def _list(self) -> None:
        try:
            for listed in self.store.list(""):
                self.sizes[listed.key] = listed.size_bytes
        except CorruptError as error:
            self.find(error.field or "", "every object is a plain file", error.message, "I2")
        for key in self.sizes:
            known = layout.known(key)
            if known is not None:
                self.known[key] = known
                self._index(key, known)
        self.counts.update(objects=len(self.sizes), bytes=sum(self.sizes.values()))

    def _index(self, key: str, known: layout.Known) -> None:
        folder = key.rpartition("/")[0]
        if "n" in known.parts:
            self.numbers[folder].append(int(known.parts["n"]))
        if known.kind == "checkpoint":
            self.folders[folder].append(key)
        if "attempt" in known.parts:
            run = known.parts["experiment"], known.parts["run"]
            self.attempts[run][int(known.parts["attempt"])] += 1
        if "set" in known.parts and "contract" in known.parts:
            of = known.parts["set"], known.parts["contract"]
            self.sets[known.parts["experiment"]].setdefault(of, {}).setdefault(known.kind, []).append(key)

    def size(self, key: str) -> int | None:
        """The size of an object. The listing may be older than the event that names it."""
        return self.sizes[key] if key in self.sizes else self.store.head(key)

    def name(self, keys: Iterable[str]) -> None:
        """Something in the store stands for `keys`."""
        self._named.update(keys)

    def strand(self, experiment: str, request: str) -> None:
        """Something names a receipt of this request that is not there any more."""
        self._stranded.add((experiment, request))

    def _broken(self) -> set[tuple[str, str] | None]:
        """The examinations and contracts of which something is damaged or gone."""
        found = {self._part_of(finding.key) for finding in self.findings}
        return (found | self._stranded) - {None}

    def _part_of(self, key: str) -> tuple[str, str] | None:
        """The experiment, and the request or the contract, that an object belongs to, as its key says, there or not."""
        known = layout.known(key)
        if known is None:
            return None
        of = known.parts.get("request") or known.parts.get("contract")
        return None if of is None else (known.parts["experiment"], of)

    def _orphans(self) -> Iterator[Listed]:
        for key, known in self.known.items():
            if key not in self._named and known.kind not in layout.DERIVED:
                yield Listed(key, self.sizes[key])
        leftovers = getattr(self.store, "leftovers", None)  # only a store on a disk has temporary files
        for key in leftovers() if leftovers is not None else ():
            yield Listed(key, 0)

    # --- what is found --------------------------------------------------------------------------------------

    def find(self, key: str, rule: str, found: str, invariant: str) -> None:
        """One broken promise."""
        self.findings.append(Finding(key, rule, found, invariant))

    def absent(self, key: str) -> bool:
        """Name `key`; whether it is not there."""
        self._named.add(key)
        return self.size(key) is None

    def missing(self, key: str, rule: str, invariant: str) -> bool:
        """Name `key`, and find it missing if it is."""
        if not self.absent(key):
            return False
        self.find(key, rule, f"{key} is missing", invariant)
        return True

    # --- what is in it --------------------------------------------------------------------------------------

    def get(self, key: str, max_bytes: int = MAX_JSON_BYTES) -> bytes:
        """The bytes of an object that is there; what is too long to be what it should be is cut."""
        with self.store.open(key) as source:
            data = source.read(max_bytes)
        self.progress(len(data))
        return data

    def progress(self, size_bytes: int) -> None:
        """So many more bytes have been looked at."""
        self._done += size_bytes
        self._tell(min(self._done, self.counts["bytes"]), self.counts["bytes"])

    def matches(self, key: str, digest: str, data: bytes) -> bool:
        """Whether `data`, read from `key`, has this digest; found if not."""
        if sha256(data) == digest:
            return True
        self.find(key, "an object is what its name says", f"{key} does not match its sha256", "I2")
        return False

    def data(self, key: str, digest: str) -> None:
        """Hold an object against its digest that is read only with `read_data`, as a stream."""
        if self.read_data:
            if digest_of_object(self.store, key) != digest:
                self.find(key, "an object is what its name says", f"{key} does not match its sha256", "I2")
            self.progress(self.sizes[key])
