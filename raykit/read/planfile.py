"""A plan file where it lies, with the shared file that its tables are from. Loads nothing heavy."""

from __future__ import annotations

from pathlib import Path

from raykit.errors import CorruptError, PlanError
from raykit.ids import MAX_JSON_BYTES
from raykit.plan import MAX_BYTES, Lock, Plan, ReadShared, load_plan


def read_plan_file(plan_path: Path) -> tuple[bytes, Plan]:
    """A plan file, as bytes and as a plan, with the shared file beside it or in a folder above.

    Raises:
        PlanError: the file cannot be read, or anything in it is wrong.
    """
    try:
        with plan_path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # load_plan refuses what is longer, unread
    except OSError as error:
        raise PlanError(
            f"{plan_path} cannot be read: {error.strerror}",
            field="PLAN",
            value=str(plan_path),
            rule="a plan file",
        ) from error
    return data, load_plan(data, where=str(plan_path), shared=shared_beside(plan_path))


def lock_path(plan_path: Path) -> Path:
    """Where `plan check` leaves the lock of a plan file."""
    if plan_path.suffix in ("", ".lock"):
        return plan_path.with_name(plan_path.name + ".lock")
    return plan_path.with_suffix(".lock")


def lock_beside(plan_path: Path) -> Lock | None:
    """The lock that `plan check` has left beside a plan file; None if there is none that can be read."""
    try:
        with lock_path(plan_path).open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
        return Lock.from_bytes(data, str(lock_path(plan_path)))
    except (OSError, CorruptError):
        return None


def shared_beside(plan_path: Path) -> ReadShared:
    """Reads a shared file beside a plan, or the nearest one in a folder above.

    Raises, when it is called:
        OSError: there is none, or it cannot be read.
    """

    def read(name: str) -> bytes:
        folder = plan_path.resolve().parent
        for above in (folder, *folder.parents):
            if (above / name).is_file():
                return (above / name).read_bytes()
        raise FileNotFoundError(2, "no such file here or in a folder above")

    return read
