"""The registry of the root: weights that can be chosen, each under one name, and those that were made elsewhere.

One name stands for one manifest for ever, and the same bytes have one name: what a plan calls its base is what it
was, whoever looks and whenever. What people say of it may be corrected: the newest counts, all of it stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from raykit.candidates import Registry, read_registry
from raykit.errors import CorruptError, InvalidInput, NotFoundError
from raykit.ids import sha256
from raykit.records import Adopted, AdoptedFile, CandidateEvent, CandidatesEntry, Record, Registered
from raykit.store import layout
from raykit.store.base import Chunk, ObjectStore
from raykit.store.commit import MANIFEST, MAX_MANIFEST_BYTES, require_exactly
from raykit.store.log import Log

SAID = {
    "role": "role",
    "update": "updates",
    "rows": "rows",
    "accelerator_ms": "accelerator milliseconds",
    "cost": "cost",
    "history": "history",
    "source": "source note",
    "surfaces": "surfaces",
}
"""What a registration says beside what it names: to say something else later is to correct it."""

SAID_OF_A_RUN = ("role", "source", "surfaces")
"""The same for a checkpoint of a run: the rest was measured here, and is what it was when it was registered."""


# --- the log ------------------------------------------------------------------------------------------------


def read_candidates(store: ObjectStore) -> tuple[Registered, ...]:
    """Every registered candidate as it was last said to be, in the order in which they were registered.

    Raises:
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return newest(event for _, event in read_statements(store))


def read_statements(store: ObjectStore) -> tuple[tuple[float, Registered], ...]:
    """All that was ever said of candidates, corrected since or not, and when.

    Raises:
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
    """
    log = _log(store, by="reader")
    log.refresh()
    return tuple((entry.at, event) for entry in log.entries for event in _registered([entry]))


def newest(said: Iterable[Registered]) -> tuple[Registered, ...]:
    """Of each candidate what was said of it last, in the order in which they were registered."""
    return tuple({event.candidate: event for event in said}.values())


def read_candidate_registry(store: ObjectStore) -> Registry:
    """Every candidate with all acts on it, and the one that is in production.

    Raises:
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
    """
    log = _log(store, by="reader")
    log.refresh()
    return read_registry(log.entries)


def act(
    store: ObjectStore, decide: Callable[[Registry], CandidateEvent | None], *, by: str, at: float
) -> CandidateEvent | None:
    """Append what `decide` makes of the registry as it is at that moment; None if it changes nothing.

    `decide` may raise to refuse: then nothing is written.

    Raises:
        CorruptError: the registry is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """

    def events(entries: Sequence[CandidatesEntry]) -> list[Record]:
        event = decide(read_registry(entries))
        return [] if event is None else [event]

    entry = _log(store, by=by).append(events, at=at)
    return None if entry is None else entry.events[0]


def find_candidate(store: ObjectStore, name: str) -> Registered | None:
    """The candidate of this name; None if there is none.

    Raises:
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return next((found for found in read_candidates(store) if found.candidate == name), None)


def register(store: ObjectStore, event: Registered, *, at: float) -> bool:
    """Give weights a name, or correct what was said of them; False if exactly this was said before.

    Raises:
        InvalidInput: the name stands for other bytes, or something else was said of them; these bytes have another
            name; or there is nothing to correct.
        CorruptError: the registry is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """

    def decide(entries: Sequence[CandidatesEntry]) -> list[Record]:
        return [] if is_registered(_registered(entries), event) else [event]

    return _log(store, by=event.person).append(decide, at=at) is not None


def is_registered(said: Iterable[Registered], event: Registered) -> bool:
    """Whether `event` says what is known already.

    Raises:
        InvalidInput: its name stands for other bytes, or something else was said of them; its bytes have another
            name; or there is nothing to correct.
    """
    for known in newest(said):
        if known.candidate == event.candidate:
            _require_these_weights(known, event)
            if not event.corrects:
                _require_the_same(known, event)
            return not _differing(known, event)
        if known.manifest == event.manifest:
            raise InvalidInput(
                f"these weights are registered already, as {known.candidate}",
                field="--as" if event.origin == "adopted" else "NAME",
                value=event.candidate,
                rule="the same weights have one name, so that nothing is decided of them twice",
                remedy=f"use {known.candidate} in the plan, or say it of that name: --as {known.candidate}"
                if event.origin == "adopted"
                else f"raykit candidates show {known.candidate}",
            )
    if event.corrects:
        raise InvalidInput(
            f"nothing was said of a candidate {event.candidate}",
            field="--correct",
            value=event.candidate,
            rule="the name of a candidate, and the same weights",
            remedy="leave --correct out, or give the name that it has: raykit ls",
        )
    return False


def _require_these_weights(known: Registered, event: Registered) -> None:
    if known.manifest != event.manifest:
        raise InvalidInput(
            f"{known.candidate} stands for other weights: manifest {known.manifest[:12]}, not {event.manifest[:12]}",
            field="--as",
            value=event.candidate,
            rule="one name, one set of weights, for ever",
            remedy="give the new weights a name of their own",
        )


def _differing(known: Registered, event: Registered) -> list[str]:
    """The parts of a statement that `event` has otherwise. A source that it leaves out is not denied."""
    names = SAID if event.origin == "adopted" else SAID_OF_A_RUN
    return [
        name
        for name in names
        if getattr(known, name) != getattr(event, name)
        and not (name == "source" and event.source is None and not event.corrects)
    ]


def _require_the_same(known: Registered, event: Registered) -> None:
    for name in _differing(known, event):
        was, now = getattr(known, name), getattr(event, name)
        raise InvalidInput(
            f"{known.candidate} was registered by {known.person} with {SAID[name]} {_told(was)}, not {_told(now)}",
            field=SAID[name],
            value=now,
            rule="what was registered stays, until somebody corrects it",
            remedy=f"give it as it was; or, if that was wrong: {_again(known)} --correct, with all that is so",
        )


def _again(known: Registered) -> str:
    if known.origin == "adopted":
        return f"raykit adopt SOURCE --as {known.candidate}"
    return f"raykit candidates register {known.candidate} {known.experiment}@{known.update} --role ROLE"


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{each.name}={'selects' if each.may_select else 'reports'}" for each in value)
    return "left out" if value is None else str(value)


def _registered(entries: Iterable[CandidatesEntry]) -> Iterator[Registered]:
    for entry in entries:
        for event in entry.events:
            if isinstance(event, Registered):
                yield event


def _log(store: ObjectStore, *, by: str) -> Log[CandidatesEntry]:
    return Log(store, layout.candidates_log(), CandidatesEntry, by=by)


# --- weights from elsewhere ---------------------------------------------------------------------------------


def adopted_digest(manifest: Adopted) -> str:
    """The identity of adopted weights: the digest of the list of their files."""
    return sha256(manifest.to_bytes())


def adopted_key(manifest: Adopted) -> str:
    """Where the manifest of adopted weights lies."""
    return layout.adopted(adopted_digest(manifest), MANIFEST)


def keep_adopted(store: ObjectStore, manifest: Adopted, contents: Callable[[str], Iterable[Chunk]]) -> None:
    """Write the files of adopted weights, the manifest last. `contents` gives the bytes of a file as a stream.

    Files that are there already are not written again. Until the registry names them, they are nothing.

    Raises:
        InvalidInput: what `contents` gives is not what the manifest says; nothing of that file is kept.
        ConflictError: a key holds other bytes.
        UnknownOutcomeError: a reply was lost; do it again.
        StoreUnavailableError: the store did not take it.
    """
    digest = adopted_digest(manifest)
    for file in manifest.files:
        store.put_new(layout.adopted(digest, file.name), _unchanged(contents(file.name), file))
    store.put_new(layout.adopted(digest, MANIFEST), manifest.to_bytes())


def _unchanged(contents: Iterable[Chunk], file: AdoptedFile) -> Iterator[Chunk]:
    """The bytes of `file`; the last of them only once they are known to be the ones that were looked at before.

    A key that holds other bytes could never be put right, so a file that changes under the reader must not become one.
    """
    found, held = hashlib.sha256(), b""
    for chunk in contents:
        found.update(chunk)
        yield held
        held = bytes(chunk)
    if found.hexdigest() != file.sha256:
        raise InvalidInput(
            f"{file.name} has changed while it was read",
            field="SOURCE",
            rule="weights that nobody writes to",
            remedy="adopt them again once they rest",
        )
    yield held


def read_adopted(store: ObjectStore, digest: str) -> Adopted:
    """The manifest of adopted weights.

    Raises:
        CorruptError: it is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.adopted(digest, MANIFEST)
    try:
        data = store.get(key, max_bytes=MAX_MANIFEST_BYTES)
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing", rule="I1") from error
    if sha256(data) != digest:
        raise CorruptError(f"{key} does not match its sha256", rule="I1")
    return Adopted.from_bytes(data, key)


def verify_adopted(store: ObjectStore, digest: str, *, read_data: bool = True) -> Adopted:
    """Check adopted weights whole: the manifest, exactly its files, their sizes and (with `read_data`) digests.

    Raises:
        CorruptError: a file is missing, extra, truncated or changed.
        StoreUnavailableError: the store did not answer.
    """
    manifest = read_adopted(store, digest)
    folder = layout.adopted(digest, MANIFEST).rpartition("/")[0]
    require_exactly(store, folder, manifest.files, read_data=read_data)
    return manifest
