"""The same question to another process: what depends on the process that asks, or on what it was asked before, shows.

    answer = ask_elsewhere({"what": "examine", ...}, folder)

The other process is a fresh interpreter with another hash seed, the same environment and the same bounds. It opens
everything from the store itself, has seen nothing, and ends with whoever asked. Question and answer are JSON in a
private folder. No torch here: only the other process imports it.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import raykit
from raykit.errors import CorruptError, DeadlineError, GateError, StoreUnavailableError
from raykit.ids import canonical
from raykit.records import GenerationContract, Record, Request, Roster, Setting, Suite, UnitReceipt
from raykit.shards.units import Unit
from raykit.store import open_store
from raykit.work.failing import cause_of, words
from raykit.work.generated import Made

START_S: Final = 180.0
"""So long another process may take to come up."""
LIMIT_S: Final = 900.0
"""And so long to answer then. Whoever asks has a deadline of its own."""
POLL_S: Final = 0.25
AGAIN: Final = ", once more in another process"
"""What is said of a unit meanwhile."""

QUESTION, BEGUN, ANSWER, DATA = "question.json", "begun", "answer.json", "rows.parquet"


R = TypeVar("R", bound=Record)


class Elsewhere:
    """Asks another process about some of a worker's checkpoints: its first, second, fourth, eighth, ..."""

    def __init__(self) -> None:
        self.starts: Callable[[], None] = lambda: None
        """Called now and then for as long as the other process is coming up."""
        self._count = 0

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is one of those."""
        return (self._count + 1) & self._count == 0

    def examine(
        self,
        root: str,
        suite: Suite,
        roster: Roster,
        request: Request,
        key: str,
        units: list[str],
        setting: Setting | None,
        folder: Path,
    ) -> dict[str, Any] | None:
        """What another process finds of some units of a checkpoint, by unit; None if this one is not due.

        Raises:
            GateError: there, the recipe raises.
            MemoryError: it was ended from outside.
            Unknown: it did not answer, or the store did not answer it.
        """
        due, self._count = self.due, self._count + 1
        if not due or not units:
            return None
        question = {
            "what": "examine",
            "root": root,
            "suite": suite.plain(),
            "roster": roster.plain(),
            "request": request.plain(),
            "key": key,
            "units": units,
            "setting": None if setting is None else setting.plain(),
        }
        with TemporaryDirectory(prefix="again-", dir=folder.parent) as name:
            found: dict[str, Any] = ask_elsewhere(question, Path(name), self.starts)
            return found


class MakeElsewhere:
    """Makes a unit of a synthetic set in another process: a `Make`."""

    def __init__(self, root: str, contract: GenerationContract, teacher_key: str, folder: Path) -> None:
        """`teacher_key` is that of the teacher's manifest; beside `folder` the other process works."""
        self._question = {
            "what": "make",
            "root": root,
            "contract": contract.plain(),
            "teacher": teacher_key,
        }
        self._folder = folder
        self.starts: Callable[[], None] = lambda: None
        """Called now and then for as long as the other process is coming up."""

    def __call__(self, unit: Unit) -> Made:
        """Make all rows of a unit; see `Make`.

        Raises:
            GateError: there, the recipe raises.
            MemoryError: the other process was ended from outside.
            Unknown: it did not answer, or the store did not answer it.
        """
        with TemporaryDirectory(prefix="again-", dir=self._folder.parent) as name:
            found = ask_elsewhere({**self._question, "unit": unit.number}, Path(name), self.starts)
            receipt = UnitReceipt.from_bytes(found["receipt"].encode(), "the other process")
            return Made(receipt=receipt, data=(Path(name) / DATA).read_bytes())


def ask_elsewhere(question: Mapping[str, Any], folder: Path, starts: Callable[[], None]) -> Any:
    """The answer of a fresh process, which works in `folder`; `starts` is called for as long as it is coming up.

    Raises:
        GateError: there, the recipe raises.
        MemoryError: it was ended from outside.
        Unknown: it did not answer, or the store did not answer it.
    """
    (folder / QUESTION).write_text(json.dumps(question))
    command = [sys.executable, "-P", "-m", "raykit.work.again", str(folder)]
    with subprocess.Popen(  # noqa: S603 - this very interpreter
        command, stdin=subprocess.PIPE, stdout=2, env=_environment(), cwd=folder
    ) as process:
        try:
            code = _wait(process, folder / BEGUN, starts)
        finally:
            process.kill()
    answer = folder / ANSWER
    if code != 0 or not answer.exists():
        raise MemoryError(f"asked again, another process was ended: code {code}")
    told = json.loads(answer.read_bytes())
    if "failed" in told:
        raise _failure(told["failed"], told["message"])
    return told["found"]


def _wait(process: subprocess.Popen[bytes], begun: Path, starts: Callable[[], None]) -> int:
    """The exit code of a process that was started just now."""
    until_s, up = time.monotonic() + START_S, False
    while True:
        if not up:
            starts()
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            pass
        if not up and (up := begun.exists()):
            until_s = time.monotonic() + LIMIT_S
        if time.monotonic() > until_s:
            raise DeadlineError("asked again, another process has not answered in time")


def _environment() -> dict[str, str]:
    """That of this process, but for the seed of `hash`, which must not matter."""
    package = str(Path(raykit.__file__).resolve().parents[1])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONHASHSEED": other}


def _failure(kind: str, message: str) -> Exception:
    said = words(f"asked again, another process could not answer: {message}")
    match kind:
        case "memory":
            return MemoryError(said)
        case "infrastructure":
            return StoreUnavailableError(said)
        case "corrupt":
            return CorruptError(said)
    return GateError(said, field="recipe", rule="the same answers in every process")


# --- rows that differ ---------------------------------------------------------------------------------------


def rows_that_differ(one: bytes, other: bytes) -> list[int]:
    """The numbers of the rows that two Parquet files of one unit do not have alike."""
    import pyarrow.parquet as pq

    from raykit.store.contents import contents_of, own_columns

    def rows(data: bytes) -> dict[int, bytes]:
        table = pq.read_table(io.BytesIO(data))
        contents = contents_of(own_columns(table))
        numbers = table.column("row").to_pylist()
        return {row: contents[8 * at : 8 * at + 8] for at, row in enumerate(numbers)}

    left, right = rows(one), rows(other)
    return sorted(row for row in left.keys() | right.keys() if left.get(row) != right.get(row))


# --- the other process --------------------------------------------------------------------------------------


def _examine(question: Mapping[str, Any], folder: Path) -> Any:
    from raykit.work.qc_unit import bench_of

    setting = question["setting"]
    bench = bench_of(
        open_store(question["root"]),
        _record(Suite, question["suite"]),
        _record(Roster, question["roster"]),
        folder,
        None if setting is None else _record(Setting, setting),
        only=question["units"],
    )
    (folder.parent / BEGUN).touch()
    return bench.answers(_record(Request, question["request"]), question["key"])


def _make(question: Mapping[str, Any], folder: Path) -> Any:
    from raykit.shards.units import unit_of
    from raykit.work.gen_unit import Producer

    contract = _record(GenerationContract, question["contract"])
    producer = Producer(open_store(question["root"]), contract, question["teacher"], folder)
    (folder.parent / BEGUN).touch()
    made = producer(unit_of(contract, question["unit"]))
    (folder.parent / DATA).write_bytes(made.data)
    return {"receipt": made.receipt.to_bytes().decode()}


def _record(kind: type[R], plain: Any) -> R:
    return kind.from_bytes(canonical(plain), "the question")


def _end_with_asker() -> None:
    """End as soon as whoever asked is gone: its end of the pipe closes with it."""
    os.read(0, 1)
    os._exit(1)


def main(folder: Path) -> None:
    """Answer the question that lies in `folder`."""
    threading.Thread(target=_end_with_asker, daemon=True).start()
    question = json.loads((folder / QUESTION).read_bytes())
    code = folder / "code"
    code.mkdir(mode=0o700)
    try:
        answer = {"found": {"examine": _examine, "make": _make}[question["what"]](question, code)}
    except Exception as error:  # noqa: BLE001 - a recipe may raise anything, and whoever asked has to hear of it
        cause = cause_of(error)
        answer = {"failed": cause.kind, "message": cause.message}
    (folder / ANSWER).write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do, and the thread above holds on to its pipe


if __name__ == "__main__":
    main(Path(sys.argv[1]))
