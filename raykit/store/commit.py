"""Checkpoints in the store: written beside, decided once, verified before anything parses them.

The order that makes a checkpoint true at any instant: every rank writes its files under the attempt's own
prefix, then a note that lists them with their digests; rank 0 gathers the notes into one closed manifest; the
`commit` event in the run's log names the manifest's digest. Before that event there is no checkpoint, whatever
lies in the store; after it, a file that is missing, extra, stale or changed refuses the load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raykit.errors import CorruptError, DeadlineError, NotFoundError
from raykit.ids import sha256
from raykit.records import Commit, FileRef, Manifest, PassedOver, RankFiles
from raykit.store import layout
from raykit.store.base import Data, ObjectStore

MANIFEST = "manifest.json"
READ_BYTES = 4 * 1024 * 1024
MAX_MANIFEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where one attempt writes one checkpoint."""

    experiment: str
    run: str
    update: int
    attempt: int

    def key(self, file: str) -> str:
        return layout.checkpoint(self.experiment, self.run, self.update, self.attempt, file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """The newest checkpoint that verifies, and those that did not."""

    commit: Commit
    manifest: Manifest
    passed_over: tuple[PassedOver, ...]


def note_name(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def write_file(
    store: ObjectStore,
    slot: Slot,
    name: str,
    data: Data,
    *,
    holds: str,
    rank: int,
    shard: int = 0,
    shards: int = 1,
) -> FileRef:
    """Write one file of a checkpoint. It is not part of any checkpoint until a commit names it.

    Raises:
        ConflictError: this attempt has already written other bytes there.
        UnknownOutcomeError: the reply was lost and the file could not be read back.
        StoreUnavailableError: the store did not take it.
    """
    stored = store.put_new(slot.key(name), data)
    return FileRef.model_validate(
        {
            "name": name,
            "sha256": stored.sha256,
            "size_bytes": stored.size_bytes,
            "holds": holds,
            "rank": rank,
            "shard": shard,
            "shards": shards,
        }
    )


def write_note(store: ObjectStore, slot: Slot, rank: int, files: Sequence[FileRef]) -> None:
    """Say that `rank` has written all its files. Raises what `write_file` raises."""
    store.put_new(slot.key(note_name(rank)), RankFiles(rank=rank, files=tuple(files)).to_bytes())


def gather(
    store: ObjectStore, slot: Slot, world_size: int, *, wait: Callable[[], bool]
) -> tuple[FileRef, ...]:
    """The files of every rank, sorted by name, once all notes are there.

    `wait` pauses between two looks, and answers False when it is time to give up.

    Raises:
        DeadlineError: a rank's note did not come.
        CorruptError: a note does not parse or is another rank's.
        StoreUnavailableError: the store did not answer.
    """
    files: list[FileRef] = []
    for rank in range(world_size):
        while True:
            try:
                data = store.get(slot.key(note_name(rank)), max_bytes=MAX_MANIFEST_BYTES)
                break
            except NotFoundError:
                if not wait():
                    raise DeadlineError(
                        f"rank {rank} did not finish writing the checkpoint of update {slot.update}"
                    ) from None
        note = RankFiles.from_bytes(data, slot.key(note_name(rank)))
        if note.rank != rank:
            raise CorruptError(f"{slot.key(note_name(rank))} is the note of rank {note.rank}")
        files += note.files
        files.append(
            FileRef(name=note_name(rank), sha256=sha256(data), size_bytes=len(data), holds="state", rank=rank)
        )
    return tuple(sorted(files, key=lambda file: file.name))


def write_manifest(store: ObjectStore, slot: Slot, manifest: Manifest) -> tuple[str, str]:
    """Close the checkpoint; returns the manifest's key and digest. Raises what `write_file` raises."""
    key = slot.key(MANIFEST)
    return key, store.put_new(key, manifest.to_bytes()).sha256


def read_manifest(store: ObjectStore, commit: Commit) -> Manifest:
    """The manifest that `commit` names.

    Raises:
        CorruptError: it is missing, is not what the commit named, or is of another update.
        StoreUnavailableError: the store did not answer.
    """
    try:
        data = store.get(commit.key, max_bytes=MAX_MANIFEST_BYTES)
    except NotFoundError as error:
        raise CorruptError(f"{commit.key} is missing", rule="I1") from error
    if sha256(data) != commit.sha256:
        raise CorruptError(f"{commit.key} is not the manifest that was committed", rule="I1")
    manifest = Manifest.from_bytes(data, commit.key)
    if manifest.update != commit.update:
        raise CorruptError(f"{commit.key} is of update {manifest.update}", rule="I1")
    return manifest


def verify(store: ObjectStore, commit: Commit, *, read_data: bool = True) -> Manifest:
    """Check a whole checkpoint: the manifest, exactly its files, their sizes and (with `read_data`) digests.

    Raises:
        CorruptError: a file is missing, extra, truncated or changed.
        StoreUnavailableError: the store did not answer.
    """
    manifest = read_manifest(store, commit)
    require_exactly(store, folder_of(commit), manifest.files, read_data=read_data)
    return manifest


class File(Protocol):
    """What a manifest says of one file."""

    @property
    def name(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


def require_exactly(store: ObjectStore, folder: str, files: Sequence[File], *, read_data: bool) -> None:
    """Let only a folder pass that holds a manifest and exactly its files.

    Raises:
        CorruptError: a file is missing, extra, truncated or changed.
        StoreUnavailableError: the store did not answer.
    """
    there = {item.key.removeprefix(folder + "/"): item.size_bytes for item in store.list(folder)}
    there.pop(MANIFEST, None)
    for extra in sorted(there.keys() - {file.name for file in files}):
        raise CorruptError(f"{folder}/{extra} is not in the manifest", rule="I1")
    for file in files:
        key = f"{folder}/{file.name}"
        if file.name not in there:
            raise CorruptError(f"{key} is missing", rule="I1")
        if there[file.name] != file.size_bytes:
            raise CorruptError(
                f"{key} is {there[file.name]} bytes long, the manifest says {file.size_bytes}", rule="I1"
            )
        if read_data and _digest_or_none(store, key) != file.sha256:
            raise CorruptError(f"{key} does not match its sha256", rule="I1")


def newest_good(store: ObjectStore, commits: Iterable[Commit]) -> Good | None:
    """Walk `commits` (oldest first) from the newest and take the first that verifies. Deletes nothing.

    Raises:
        CorruptError: there are commits, and none verifies.
        StoreUnavailableError: the store did not answer.
    """
    passed_over: list[PassedOver] = []
    for commit in reversed(list(commits)):
        try:
            manifest = verify(store, commit)
        except CorruptError as error:
            passed_over.append(PassedOver(update=commit.update, attempt=commit.attempt, why=str(error)))
            continue
        return Good(commit=commit, manifest=manifest, passed_over=tuple(passed_over))
    if passed_over:
        raise CorruptError(
            f"none of the {len(passed_over)} checkpoints verifies; the newest: {passed_over[0].why}",
            remedy="restore the store from a copy, then run `raykit check --read-data`",
        )
    return None


def read_file(store: ObjectStore, commit: Commit, file: FileRef) -> bytearray:
    """All bytes of one file, verified before anyone parses them.

    Raises:
        CorruptError: missing, of another size, or changed.
        StoreUnavailableError: the store did not answer.
    """
    return read_verified(store, f"{folder_of(commit)}/{file.name}", file)


def read_verified(store: ObjectStore, key: str, file: File) -> bytearray:
    """All bytes of `key`, if they are those of `file`.

    Raises:
        CorruptError: missing, of another size, or changed.
        StoreUnavailableError: the store did not answer.
    """
    data = bytearray(file.size_bytes)
    view = memoryview(data)
    filled = 0
    try:
        with store.open(key) as source:
            while filled < len(data):
                count = source.readinto(view[filled : filled + READ_BYTES])  # type: ignore[attr-defined]
                if not count:
                    break
                filled += count
            longer = bool(source.read(1))
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing", rule="I1") from error
    if filled != file.size_bytes or longer or sha256(data) != file.sha256:
        raise CorruptError(f"{key} does not match its sha256", rule="I1")
    return data


def digest_of_object(store: ObjectStore, key: str) -> str:
    """The sha256 of an object, read as a stream.

    Raises:
        NotFoundError: there is no such object.
        StoreUnavailableError: the store did not answer.
    """
    found = hashlib.sha256()
    with store.open(key) as source:
        while chunk := source.read(READ_BYTES):
            found.update(chunk)
    return found.hexdigest()


def _digest_or_none(store: ObjectStore, key: str) -> str | None:
    try:
        return digest_of_object(store, key)
    except NotFoundError:  # gone since it was listed
        return None


def folder_of(commit: Commit) -> str:
    """The key prefix under which a commit's files lie."""
    return commit.key.rsplit("/", 1)[0]
