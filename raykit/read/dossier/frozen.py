"""What an experiment was made of: every frozen input by its digest, and whether the store still has those bytes.

Nothing here trusts a file before its digest holds, and nothing that is missing or unreadable is passed over: it is
named, as not known.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import parse_json, sha256
from raykit.plan import Lock, LockedBase
from raykit.plan.tables import Role
from raykit.read.dossier.revisions import Revision, changes_since, kind_of
from raykit.records import ExperimentEntry, Locked, Manifest
from raykit.store import layout
from raykit.store.base import ObjectStore

Held = Literal["verified", "there", "missing", "changed"]
"""`verified`: read, and its digest holds. `there`: not read; its size is right."""

ROLES: tuple[str, ...] = get_args(Role)
V = TypeVar("V")

MAX_INPUT_BYTES = 128 * 1024 * 1024
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One frozen object."""

    what: str
    key: str
    sha256: str | None
    """None for what is only known to lie beside something that has one."""
    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMembers:
    """The members of one role. What its manifest does not say is None."""

    role: str
    rows: int | None
    groups: int | None
    contents: int | None
    members: str | None
    """The digest of ids, groups, strata and contents."""
    sha256: str | None
    """Of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """One split: how it was divided, into what, and what its roles have in common."""

    digest: str
    policy: Mapping[str, Any] | None
    roles: tuple[RoleMembers, ...]
    overlaps: tuple[Mapping[str, Any], ...] | None
    """Pairs of roles with exact contents in common; None if nobody counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One revision of the recipe."""

    digest: str
    recipe: str | None
    files: tuple[CodeFile, ...] | None
    """None if they cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One environment record: packages, revision of the source, hardware."""

    digest: str
    record: Mapping[str, Any] | None
    """None if it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """All of it, in the order in which it was locked."""

    revisions: tuple[Revision, ...] = ()
    inputs: tuple[Input, ...] = ()
    members: tuple[Members, ...] = ()
    code: tuple[Code, ...] = ()
    runtimes: tuple[Runtime, ...] = ()

    @property
    def newest(self) -> Revision | None:
        return self.revisions[-1] if self.revisions else None

    @property
    def lock(self) -> Lock | None:
        """The newest lock, if the store has it."""
        return self.newest.lock if self.newest is not None else None

    @property
    def base(self) -> LockedBase | None:
        """The weights that training starts from."""
        return self.lock.base if self.lock is not None else None


class Freezer:
    """Reads the frozen inputs of one experiment, each once."""

    def __init__(self, store: ObjectStore, experiment: str) -> None:
        self._store = store
        self._experiment = experiment
        self._inputs: dict[str, Input] = {}
        self._read: dict[str, bytes | None] = {}

    def read(self, entries: Iterable[ExperimentEntry]) -> Frozen:
        """Everything that the experiment's log has locked.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        revisions = tuple(self._revisions(entries))
        recipes = {each.locked.code: _recipe(each.lock) for each in revisions}
        members = tuple(self._members(digest) for digest in _unlike(each.locked.data for each in revisions))
        code = tuple(
            self._code(each, recipes[each]) for each in _unlike(each.locked.code for each in revisions)
        )
        environments = _unlike(each.locked.environment for each in revisions)
        runtimes = tuple(self._runtime(digest) for digest in environments)
        return Frozen(
            revisions=revisions,
            inputs=tuple(self._inputs.values()),
            members=members,
            code=code,
            runtimes=runtimes,
        )

    def base_held(self, base: LockedBase) -> Input:
        """Whether the store has the manifest of the weights that training starts from."""
        self._object("base", base.key, base.manifest)
        return self._inputs[base.key]

    # --- plans ----------------------------------------------------------------------------------------------

    def _revisions(self, entries: Iterable[ExperimentEntry]) -> Iterator[Revision]:
        before: Revision | None = None
        for entry in entries:
            for event in entry.events:
                if not isinstance(event, Locked):
                    continue
                lock = self._lock(event)
                changes = changes_since(before, event, lock)
                before = Revision(
                    entry=entry.n,
                    at=entry.at,
                    by=entry.by,
                    locked=event,
                    lock=lock,
                    kind=kind_of(before, event, lock, changes),
                    changes=changes,
                )
                yield before

    def _lock(self, locked: Locked) -> Lock | None:
        key = layout.plan(self._experiment, locked.plan, "plan.lock")
        data = self._object("plan.lock", key, locked.plan)
        lock = _parsed_lock(data, key)
        if lock is not None:
            plan_key = layout.plan(self._experiment, locked.plan, "plan.toml")
            self._object("plan.toml", plan_key, lock.plan_sha256)
            if lock.shared is not None:
                shared_key = layout.plan(self._experiment, locked.plan, "shared.toml")
                self._object("shared.toml", shared_key, lock.shared)
        return lock

    # --- data, code, environment ----------------------------------------------------------------------------

    def _members(self, digest: str) -> Members:
        key = layout.membership(self._experiment, digest, MANIFEST)
        manifest = _mapping(self._object("members", key, digest), key)
        roles = manifest.get("roles")
        found = tuple(self._role(digest, role, given) for role, given in _items(roles))
        overlaps = manifest.get("overlaps")
        shared = [each for each in overlaps if each.get("contents")] if isinstance(overlaps, list) else None
        return Members(
            digest=digest,
            policy=manifest.get("policy"),
            roles=found,
            overlaps=None if shared is None else tuple(shared),
        )

    def _role(self, digest: str, role: str, given: Mapping[str, Any]) -> RoleMembers:
        key = layout.membership(self._experiment, digest, f"{role}.parquet")
        size_bytes = self._store.head(key)
        held: Held = "there"
        if size_bytes is None:
            held = "missing"
        elif size_bytes != given.get("size_bytes"):
            held = "changed"
        self._inputs[key] = Input(what=f"members, {role}", key=key, sha256=given.get("sha256"), held=held)
        names = ("rows", "groups", "contents", "members", "sha256")
        return RoleMembers(role=role, **{name: given.get(name) for name in names})

    def _code(self, digest: str, recipe: str | None) -> Code:
        data = self._object("code", layout.code(self._experiment, digest), digest)
        return Code(digest=digest, recipe=recipe, files=None if data is None else _files(data))

    def _runtime(self, digest: str) -> Runtime:
        key = layout.environment(self._experiment, digest)
        return Runtime(digest=digest, record=_mapping(self._object("environment", key, digest), key) or None)

    # --- objects --------------------------------------------------------------------------------------------

    def _object(self, what: str, key: str, digest: str) -> bytes | None:
        """The bytes of a frozen object, if they are those of its digest; notes how it is held."""
        if key in self._read:
            return self._read[key]
        held: Held = "verified"
        data: bytes | None = None
        try:
            data = self._store.get(key, max_bytes=MAX_INPUT_BYTES)
        except NotFoundError:
            held = "missing"
        except CorruptError:
            held = "changed"
        if data is not None and sha256(data) != digest:
            held, data = "changed", None
        self._inputs[key] = Input(what=what, key=key, sha256=digest, held=held)
        self._read[key] = data
        return data


def _recipe(lock: Lock | None) -> str | None:
    recipe = lock.settings.get("recipe") if lock is not None else None
    return recipe if isinstance(recipe, str) else None


def in_order(by_role: Mapping[str, V]) -> dict[str, V]:
    """The same, in the order in which roles are spoken of; canonical JSON has them by name."""
    known = {role: by_role[role] for role in ROLES if role in by_role}
    return known | {role: value for role, value in by_role.items() if role not in known}


# --- parsing ------------------------------------------------------------------------------------------------


def read_manifest(store: ObjectStore, key: str, digest: str) -> Manifest | None:
    """A checkpoint's manifest, if the store has it as it was committed.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    try:
        data = store.get(key, max_bytes=MAX_INPUT_BYTES)
        return Manifest.from_bytes(data, key) if sha256(data) == digest else None
    except (NotFoundError, CorruptError):
        return None


def _parsed_lock(data: bytes | None, key: str) -> Lock | None:
    try:
        return None if data is None else Lock.from_bytes(data, key)
    except CorruptError:
        return None


def _mapping(data: bytes | None, key: str) -> Mapping[str, Any]:
    """A JSON object; an empty one where there is none to read."""
    try:
        found = None if data is None else parse_json(data, key)
    except CorruptError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _items(roles: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role, given in in_order(roles).items() if isinstance(roles, Mapping) else ():
        if isinstance(given, Mapping):
            yield role, given


def _files(data: bytes) -> tuple[CodeFile, ...] | None:
    """What a code tar holds; nothing of it is run, or written anywhere."""
    files = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for info in tar:
                reader = tar.extractfile(info) if info.isreg() else None
                content = b"" if reader is None else reader.read()
                files.append(CodeFile(name=info.name, sha256=sha256(content), size_bytes=len(content)))
    except tarfile.TarError:
        return None
    return tuple(files)


def _unlike(digests: Iterable[str]) -> list[str]:
    """Each once, in the order in which they came last: what is in force is at the end, new or back again."""
    return list(dict.fromkeys(reversed(list(digests))))[::-1]


__all__ = [
    "Code",
    "CodeFile",
    "Freezer",
    "Frozen",
    "Input",
    "Members",
    "RoleMembers",
    "Runtime",
    "in_order",
    "read_manifest",
]
