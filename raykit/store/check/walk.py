"""The walk over every object of a store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import MAX_JSON_BYTES, Digest, Name, sha256
from raykit.plan import Lock
from raykit.records import (
    AttemptStarted,
    Commit,
    Entry,
    ExperimentEntry,
    Locked,
    RunEntry,
    RunRecord,
    Segment,
)
from raykit.store import layout
from raykit.store.base import Listed, ObjectStore
from raykit.store.check.report import Finding, Report
from raykit.store.check.rules import RunRules
from raykit.store.commit import MANIFEST, digest_of_object, folder_of, verify
from raykit.store.log import MAX_ENTRY_BYTES, parse_entry, require_chained
from raykit.store.segments import read_segment

E = TypeVar("E", bound=Entry)

Tell = Callable[[int, int], None]
"""Told how many bytes of how many have been looked at."""


def check(store: ObjectStore, *, read_data: bool, tell: Tell = lambda done, total: None) -> Report:
    """Hold the whole store against what it promises. Writes nothing.

    Without `read_data`, records are read whole and data (segments, checkpoints, code, members) by size only.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    return _Check(store, read_data, tell).run()


class _Role(BaseModel):
    """What a split's manifest says of one role's file, as far as a check needs it."""

    sha256: Digest
    size_bytes: int


class _Split(BaseModel):
    roles: dict[Name, _Role]


class _Check:
    """One check. `named` collects every key that something in the store stands for."""

    def __init__(self, store: ObjectStore, read_data: bool, tell: Tell) -> None:
        self._store = store
        self._read_data = read_data
        self._tell = tell
        self._sizes: dict[str, int] = {}
        self._known: dict[str, layout.Known] = {}
        self._numbers: dict[str, list[int]] = defaultdict(list)
        """By log: the numbers of its files."""
        self._folders: dict[str, list[str]] = defaultdict(list)
        """By checkpoint: its files."""
        self._attempts: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        """By run: how many objects each attempt has."""
        self._named: set[str] = set()
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter()
        self._done = 0
        self._total = 0

    def run(self) -> Report:
        self._list()
        parts = [known.parts for known in self._known.values()]
        experiments = sorted({p["experiment"] for p in parts if "experiment" in p})
        locked = {name: self._experiment(name) for name in experiments}
        for name, run in sorted({(p["experiment"], p["run"]) for p in parts if "run" in p}):
            self._run(name, run, locked[name])
        for key, known in self._known.items():
            self._content(key, known)
        self._tell(self._total, self._total)
        return Report(
            url=self._store.url,
            read_data=self._read_data,
            findings=tuple(self._findings),
            orphans=tuple(self._orphans()),
            unknown=tuple(Listed(key, size) for key, size in self._sizes.items() if key not in self._known),
            counts=dict(self._counts),
        )

    # --- what is there --------------------------------------------------------------------------------------

    def _list(self) -> None:
        try:
            for listed in self._store.list(""):
                self._sizes[listed.key] = listed.size_bytes
        except CorruptError as error:
            self._find(error.field or "", "every object is a plain file", error.message, "I2")
        for key in self._sizes:
            known = layout.known(key)
            if known is not None:
                self._known[key] = known
                self._index(key, known)
        self._total = sum(self._sizes.values())
        self._counts.update(objects=len(self._sizes), bytes=self._total)

    def _index(self, key: str, known: layout.Known) -> None:
        folder = key.rpartition("/")[0]
        if "n" in known.parts:
            self._numbers[folder].append(int(known.parts["n"]))
        if known.kind == "checkpoint":
            self._folders[folder].append(key)
        if "attempt" in known.parts:
            run = known.parts["experiment"], known.parts["run"]
            self._attempts[run][int(known.parts["attempt"])] += 1

    def _size(self, key: str) -> int | None:
        """The size of an object. The listing may be older than the event that names it."""
        return self._sizes[key] if key in self._sizes else self._store.head(key)

    def _orphans(self) -> Iterator[Listed]:
        for key, known in self._known.items():
            if key not in self._named and known.kind not in layout.DERIVED:
                yield Listed(key, self._sizes[key])
        leftovers = getattr(self._store, "leftovers", None)  # only a store on a disk has temporary files
        for key in leftovers() if leftovers is not None else ():
            yield Listed(key, 0)

    def _find(self, key: str, rule: str, found: str, invariant: str) -> None:
        self._findings.append(Finding(key, rule, found, invariant))

    def _missing(self, key: str, rule: str, invariant: str) -> bool:
        """Name `key`, and find it missing if it is."""
        if not self._absent(key):
            return False
        self._find(key, rule, f"{key} is missing", invariant)
        return True

    def _absent(self, key: str) -> bool:
        self._named.add(key)
        return self._size(key) is None

    def _get(self, key: str, max_bytes: int = MAX_JSON_BYTES) -> bytes:
        """The bytes of an object that is there; what is too long to be what it should be is cut."""
        with self._store.open(key) as source:
            data = source.read(max_bytes)
        self._progress(len(data))
        return data

    def _progress(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._tell(min(self._done, self._total), self._total)

    # --- logs -----------------------------------------------------------------------------------------------

    def _log(self, prefix: str, entry: type[E]) -> tuple[list[tuple[str, E]], bool]:
        """The entries of a log that can be read, with their keys, and whether the log is whole."""
        findings = len(self._findings)
        entries: list[tuple[str, E]] = []
        raw: dict[int, bytes] = {}
        before: tuple[int, str | None] = (0, None)
        for n in self._present(prefix):
            key = layout.log_entry(prefix, n)
            data = raw[n] = self._get(key, MAX_ENTRY_BYTES)
            try:
                found = parse_entry(data, entry, key, n=n)
                entries.append((key, found))
                # A file that comes after a hole or a damaged one cannot be asked what it follows.
                (last, digest), before = before, (n, sha256(data))
                if last == n - 1:
                    require_chained(found, digest, key)
            except CorruptError as error:
                self._find(key, error.rule or "a whole entry of this log", error.message, "I2")
        if len(self._findings) == findings:
            self._snapshot(prefix, entry, raw)
        self._counts["entries"] += len(entries)
        return entries, len(self._findings) == findings

    def _present(self, prefix: str) -> Iterator[int]:
        """The numbers of a log's files; holes are findings. Entries newer than the listing belong to it."""
        highest = max(self._numbers[prefix], default=0)
        for n in range(1, highest + 1):
            if not self._missing(layout.log_entry(prefix, n), "a log has no holes", "I2"):
                yield n
        while not self._absent(layout.log_entry(prefix, highest + 1)):
            highest += 1
            yield highest

    def _snapshot(self, prefix: str, entry: type[E], raw: Mapping[int, bytes]) -> None:
        """A snapshot that is whole shows what has been deleted from the end, or written anew."""
        if layout.log_snapshot(prefix) not in self._sizes:
            return
        lines = self._store.get(layout.log_snapshot(prefix)).split(b"\n")
        prev = None
        try:
            for n, line in enumerate(lines, start=1):
                require_chained(parse_entry(line, entry, prefix, n=n), prev, prefix)
                prev = sha256(line)
        except CorruptError:
            return  # a derived file, which may be drawn anew at any time, and has been damaged itself
        for n, line in enumerate(lines, start=1):
            key = layout.log_entry(prefix, n)
            if n not in raw:
                self._find(key, "what a snapshot has seen stays in the log", f"{key} is missing", "I10")
            elif raw[n] != line:
                self._find(key, "what a snapshot has seen stays in the log", f"{key} was written anew", "I2")

    # --- experiments ----------------------------------------------------------------------------------------

    def _experiment(self, name: str) -> list[Locked] | None:
        """What the experiment has locked; None if its log is not whole."""
        self._counts["experiments"] += 1
        entries, whole = self._log(layout.experiment_log(name), ExperimentEntry)
        locked = [event for _, entry in entries for event in entry.events if isinstance(event, Locked)]
        for event in locked:
            for key in (
                layout.plan(name, event.plan, "plan.lock"),
                layout.plan(name, event.plan, "plan.toml"),
                layout.code(name, event.code),
                layout.environment(name, event.environment),
                layout.membership(name, event.data, MANIFEST),
            ):
                self._missing(key, "what is locked is kept", "I1")
        return locked if whole else None

    def _content(self, key: str, known: layout.Known) -> None:
        """An object whose key holds a digest is what its key says, whether or not an event names it."""
        match known.kind:
            case "plan" if key.endswith("/plan.lock"):
                self._plan(key, known.parts["digest"])
            case "membership" if key.endswith(f"/{MANIFEST}"):
                self._members(key, known.parts["digest"])
            case "environment":
                self._require_digest(key, known.parts["digest"], self._get(key))
            case "code":
                self._data(key, known.parts["digest"])

    def _require_digest(self, key: str, digest: str, data: bytes) -> bool:
        if sha256(data) == digest:
            return True
        self._find(key, "an object is what its name says", f"{key} does not match its sha256", "I2")
        return False

    def _data(self, key: str, digest: str) -> None:
        """An object that is read only with `read_data`, as a stream."""
        if self._read_data:
            if digest_of_object(self._store, key) != digest:
                self._find(key, "an object is what its name says", f"{key} does not match its sha256", "I2")
            self._progress(self._sizes[key])

    def _plan(self, key: str, digest: str) -> None:
        data = self._get(key)
        if not self._require_digest(key, digest, data):
            return
        try:
            lock = Lock.from_bytes(data, key)
        except CorruptError as error:
            self._find(key, "a lock", error.message, "I2")
            return
        plan = key.removesuffix("plan.lock") + "plan.toml"
        if plan in self._sizes:
            self._require_digest(plan, lock.plan_sha256, self._get(plan))

    def _members(self, key: str, digest: str) -> None:
        """The manifest of a split, and the files that it names."""
        data = self._get(key)
        if not self._require_digest(key, digest, data):
            return
        try:
            split = _Split.model_validate_json(data)
        except ValidationError:
            self._find(key, "the manifest of a split", f"{key} names no roles", "I2")
            return
        for role, record in split.roles.items():
            file = key.removesuffix(MANIFEST) + f"{role}.parquet"
            if self._missing(file, "a manifest's files are there", "I1"):
                continue
            if self._size(file) != record.size_bytes:
                found = f"{file} is {self._size(file)} bytes long, not {record.size_bytes}"
                self._find(file, "a manifest's files have its sizes", found, "I1")
            else:
                self._data(file, record.sha256)

    # --- runs -----------------------------------------------------------------------------------------------

    def _run(self, name: str, run: str, locked: list[Locked] | None) -> None:
        self._counts["runs"] += 1
        entries, whole = self._log(layout.run_log(name, run), RunEntry)
        self._run_record(name, run, locked, started=bool(entries))
        rules = RunRules()
        for key, entry in entries:
            for event in entry.events:
                if whole:
                    for broken in rules.take(event):
                        self._find(key, broken.rule, broken.found, broken.invariant)
                self._event(name, run, key, event, locked)
        if whole:
            self._counts["rows"] += rules.rows
            self._strangers(name, run, {attempt.attempt for attempt in rules.attempts})

    def _run_record(self, name: str, run: str, locked: list[Locked] | None, *, started: bool) -> None:
        key = layout.run_record(name, run)
        if key not in self._sizes:
            if started:
                self._missing(key, "a run says what it is of", "I1")
            return
        self._named.add(key)
        data = self._get(key)
        try:
            record = RunRecord.from_bytes(data, key)
            if record.to_bytes() != data:
                raise CorruptError(f"{key} is not written as raykit writes it")
        except CorruptError as error:
            self._find(key, "a run's record", error.message, "I2")
            return
        if (record.experiment, record.run) != (name, run):
            self._find(key, "a run's record is its own", f"it is of {record.experiment}/{record.run}", "I2")
        bound = record.model_dump(exclude={"schema_", "experiment", "run"})
        if locked is not None and bound not in [event.model_dump(exclude={"event"}) for event in locked]:
            self._find(
                key, "a run is of a plan that was locked", "the experiment's log locks no such plan", "I14"
            )

    def _event(self, name: str, run: str, key: str, event: object, locked: list[Locked] | None) -> None:
        match event:
            case AttemptStarted():
                if locked is not None and event.plan not in [lock.plan for lock in locked]:
                    found = f"attempt {event.attempt} is of plan {event.plan[:12]}"
                    self._find(key, "an attempt is of a plan that was locked", found, "I14")
            case Segment():
                place = layout.segment(name, run, event.attempt, event.series, event.first, event.last)
                if self._in_place(key, event.key, place):
                    self._segment(event)
            case Commit():
                place = layout.checkpoint(name, run, event.update, event.attempt, MANIFEST)
                if self._in_place(key, event.key, place):
                    self._commit(event)

    def _in_place(self, key: str, named: str, place: str) -> bool:
        if named == place:
            return True
        self._find(key, "an event names its own objects", f"it names {named}, not {place}", "I1")
        return False

    def _segment(self, event: Segment) -> None:
        self._counts["segments"] += 1
        if self._missing(event.key, "a segment that the log names is there", "I10"):
            return
        if not self._read_data:
            if self._size(event.key) != event.size_bytes:
                found = f"{event.key} is {self._size(event.key)} bytes long, not {event.size_bytes}"
                self._find(event.key, "a segment has the size that the log says", found, "I4")
            return
        try:
            read_segment(self._store, event)
        except CorruptError as error:
            self._find(event.key, "a segment is what the log says", error.message, "I4")
        self._progress(event.size_bytes)

    def _commit(self, event: Commit) -> None:
        self._counts["commits"] += 1
        files = self._folders[folder_of(event)]
        self._named.update(files)
        try:
            verify(self._store, event, read_data=self._read_data)
        except (CorruptError, NotFoundError) as error:
            self._find(event.key, "a checkpoint is exactly the files of its manifest", error.message, "I1")
        self._progress(sum(self._sizes[key] for key in files))

    def _strangers(self, name: str, run: str, attempts: set[int]) -> None:
        """Objects of an attempt that the log does not know: the log has lost its end."""
        for attempt, count in sorted(self._attempts[name, run].items()):
            if attempt not in attempts:
                found = f"{count} objects of attempt {attempt}, which is not in the log"
                self._find(
                    layout.run_log(name, run), "an attempt is in the log before it writes", found, "I10"
                )
