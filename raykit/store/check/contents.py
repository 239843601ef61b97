"""Objects whose key holds a digest: each is what its key says, whether or not an event names it."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from raykit.errors import CorruptError
from raykit.ids import Digest, Name
from raykit.plan import Lock
from raykit.store import layout
from raykit.store.check.view import View
from raykit.store.commit import MANIFEST


class _Role(BaseModel):
    """What a split's manifest says of one role's file, as far as a check needs it."""

    sha256: Digest
    size_bytes: int


class _Split(BaseModel):
    roles: dict[Name, _Role]


def check_contents(view: View) -> None:
    """Hold every such object against its key."""
    for key, known in view.known.items():
        match known.kind:
            case "plan" if key.endswith("/plan.lock"):
                _plan(view, key, known.parts["digest"])
            case "membership" if key.endswith(f"/{MANIFEST}"):
                _members(view, key, known.parts["digest"])
            case "environment":
                view.matches(key, known.parts["digest"], view.get(key))
            case "code":
                view.data(key, known.parts["digest"])


def read_lock(view: View, experiment: str, plan: Digest) -> Lock | None:
    """A lock that is there and whole; whatever is wrong with it is found by `check_contents`."""
    key = layout.plan(experiment, plan, "plan.lock")
    try:
        return None if view.size(key) is None else Lock.from_bytes(view.get(key), key)
    except CorruptError:
        return None


def _plan(view: View, key: str, digest: str) -> None:
    data = view.get(key)
    if not view.matches(key, digest, data):
        return
    try:
        lock = Lock.from_bytes(data, key)
    except CorruptError as error:
        view.find(key, "a lock", error.message, "I2")
        return
    plan = key.removesuffix("plan.lock") + "plan.toml"
    if plan in view.sizes:
        view.matches(plan, lock.plan_sha256, view.get(plan))
    shared = key.removesuffix("plan.lock") + "shared.toml"
    if shared in view.sizes and lock.shared is not None:
        view.matches(shared, lock.shared, view.get(shared))


def _members(view: View, key: str, digest: str) -> None:
    """The manifest of a split, and the files that it names."""
    data = view.get(key)
    if not view.matches(key, digest, data):
        return
    try:
        split = _Split.model_validate_json(data)
    except ValidationError:
        view.find(key, "the manifest of a split", f"{key} names no roles", "I2")
        return
    for role, record in split.roles.items():
        file = key.removesuffix(MANIFEST) + f"{role}.parquet"
        if view.missing(file, "a manifest's files are there", "I1"):
            continue
        if view.size(file) != record.size_bytes:
            found = f"{file} is {view.size(file)} bytes long, not {record.size_bytes}"
            view.find(file, "a manifest's files have its sizes", found, "I1")
        else:
            view.data(file, record.sha256)
