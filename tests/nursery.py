"""A nursery of ranks: a process that has imported everything and forks one child for each rank it is asked for.

Importing torch takes seconds, a fork milliseconds, so that tests can kill real processes by the hundred. The
nursery itself starts no threads. Children can be told where to die, with a real SIGKILL to themselves:

    {"put": "commit", "when": "before", "nth": 2}     at a store operation whose key contains a text
    {"loss": 7}                                        in the 7th forward pass of training, before its loss
    {"disk": 12}                                       before the 12th operation on the disk of the store

or how long their store stays away: `{"away": 5, "for_s": 1.0}` refuses every write from the fifth on, for a second.

`away` is a file: while it is there, no store of the rank answers anything. `door` gives it a door to spending, with
its own `away` if that is meant to be another one.

With `"signal"` they send themselves another one there: SIGTERM to be asked to stop, SIGSTOP to be left hanging. `env`
adds to a child's environment, `hooks` are functions of `rankhooks` that are called in it before it trains.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Nursery:
    """The test's side. One per session; `rank` starts a rank, `wait` returns (exit code, output)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )
        self._started = 0

    def rank(
        self,
        task: Mapping[str, Any],
        *,
        rank: int = 0,
        world: int = 1,
        rendezvous: str | None = None,
        die: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        hooks: Mapping[str, Any] | None = None,
        door: Mapping[str, Any] | None = None,
        away: str | None = None,
    ) -> Rank:
        """Start one rank."""
        self._started += 1
        out = self._folder / f"{self._started}.out"
        pid = self._ask(
            {
                "task": dict(task),
                "rank": rank,
                "world": world,
                "rendezvous": rendezvous,
                "die": die,
                "env": dict(env or {}),
                "hooks": dict(hooks or {}),
                "door": None if door is None else dict(door),
                "away": away,
                "out": str(out),
            }
        )
        return Rank(self, pid, out)

    def wait(self, pid: int) -> int:
        return self._ask({"wait": pid})

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _ask(self, question: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class Rank:
    """One rank that runs, or ran."""

    def __init__(self, nursery: Nursery, pid: int, out: Path) -> None:
        self._nursery = nursery
        self.pid = pid
        self._out = out

    def signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def running(self) -> bool:
        """Whether the process is there and has not ended."""
        return self.state() not in ("", "Z")

    def state(self) -> str:
        """The kernel's letter for what the process does: R, S, T for stopped, Z for ended; empty if it is gone."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return ""

    def wait(self) -> tuple[int, str]:
        """(exit code, or minus the signal that ended it; what it printed)."""
        code = self._nursery.wait(self.pid)
        return code, self._out.read_text()


# --- the nursery's side -------------------------------------------------------------------------------------


def _serve() -> None:
    import pandas  # type: ignore[import-untyped]  # noqa: F401 - PyArrow looks for it at the first table
    import torch._inductor.config  # noqa: F401 - determinism needs it, and it takes longer than a whole tiny run

    import raykit.store.local
    import raykit.train.worker  # noqa: F401

    ended: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if "wait" in question:
            answer = _wait(question["wait"], ended)
        else:
            answer = _fork(question)
            ended.pop(answer, None)  # the kernel uses the numbers of dead processes again
        print(answer, flush=True)


def _wait(pid: int, ended: dict[int, int]) -> int:
    if pid not in ended:
        ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return ended[pid]


def _fork(question: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    out = os.open(question["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    code = 70
    try:
        code = _run(question)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(question: dict[str, Any]) -> int:
    import ctypes

    import rankhooks

    os.environ.update(question["env"])
    for name, argument in question["hooks"].items():
        getattr(rankhooks, name)(argument)

    import torch
    import torch.distributed as dist

    from raykit.errors import RaykitError
    from raykit.train.directive import Directive
    from raykit.train.gang import Gang
    from raykit.train.inputs import Task
    from raykit.train.surroundings import stay_inside
    from raykit.train.worker import work

    stay_inside()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives the tests
    directive = Directive()
    signal.signal(signal.SIGTERM, lambda *_: directive.stop("SIGTERM"))
    task = Task.of(question["task"])
    rank, world = question["rank"], question["world"]
    if world > 1:
        dist.init_process_group("gloo", init_method=question["rendezvous"], rank=rank, world_size=world)
    gang = Gang(rank=rank, world=world, device=torch.device("cpu"))
    store = _mortal(task.root, question["die"])
    door = _door(task, question["door"], question["away"]) if rank == 0 else None
    if question["away"] is not None:
        store = _GoneStore(store, question["away"])
    try:
        ending = work(task, gang, directive, store=store, door=door)
    except RaykitError as error:
        print(f"{error.kind}: {error}")
        return error.exit_code
    print(f"{ending.reason} at update {ending.update}: {ending.detail}")
    return 0 if ending.reason == "completed" else 4


def _mortal(root: str, die: dict[str, Any] | None) -> Any:
    from raykit.store import open_store
    from raykit.store.local import LocalStore
    from raykit.testing import Fault, FaultDisk, kill

    if die is not None and "disk" in die:
        return LocalStore(root, disk=FaultDisk(Fault(kill, at=die["disk"])))
    store = open_store(root)
    if die is None:
        return store
    if "away" in die:
        return _AwayStore(store, die["away"], die["for_s"])
    if "loss" in die:
        os.environ["TINY_DIE_AT"] = str(die["loss"])
        return store
    return _DyingStore(store, die)


def _door(task: Any, given: dict[str, Any] | None, away: str | None) -> Any:
    from raykit.budget.worst import Sizing
    from raykit.fleet.door import Attempts, StoreDoor
    from raykit.store import open_store

    if given is None:
        return None
    asked = given["attempts"]
    attempts = Attempts(
        experiment=asked["experiment"], projection=asked["projection"], sizing=Sizing(**asked["sizing"])
    )
    store, gone = open_store(task.root), given.get("away", away)
    store = store if gone is None else _GoneStore(store, gone)
    return StoreDoor(store, given["account"], attempts, by="rank 0", hold_s=task.hold_s)


class _GoneStore:
    """A store that answers nothing while a file is there."""

    def __init__(self, inner: Any, flag: str) -> None:
        self._inner = inner
        self._flag = flag

    def __getattr__(self, name: str) -> Any:
        from raykit.errors import StoreUnavailableError

        verb = getattr(self._inner, name)
        if not callable(verb):
            return verb

        def ask(*arguments: Any, **named: Any) -> Any:
            if os.path.exists(self._flag):
                raise StoreUnavailableError("no route to the store", remedy="wait")
            return verb(*arguments, **named)

        return ask


class _DyingStore:
    """A store that kills this process, or sends it another signal, at one `put_new`."""

    def __init__(self, inner: Any, die: dict[str, Any]) -> None:
        self._inner = inner
        self._die = die
        self._left = die.get("nth", 1)
        self._signal = die.get("signal", signal.SIGKILL)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_new(self, key: str, data: Any) -> Any:
        if not isinstance(data, bytes | bytearray | memoryview):
            data = b"".join(bytes(chunk) for chunk in data)
        hit = self._die["put"] in key or self._die["put"].encode() in bytes(data)[:4096]
        self._left -= hit
        if hit and self._left == 0 and self._die["when"] == "before":
            os.kill(os.getpid(), self._signal)
        stored = self._inner.put_new(key, data)
        if hit and self._left == 0 and self._die["when"] == "after":
            os.kill(os.getpid(), self._signal)
        return stored


class _AwayStore:
    """A store that takes no write for a while."""

    def __init__(self, inner: Any, nth: int, for_s: float) -> None:
        self._inner = inner
        self._left = nth
        self._for_s = for_s
        self._back_at: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_new(self, key: str, data: Any) -> Any:
        from raykit.errors import StoreUnavailableError

        self._left -= 1
        if self._left == 0:
            self._back_at = time.monotonic() + self._for_s
        if self._back_at is not None and time.monotonic() < self._back_at:
            raise StoreUnavailableError("away", remedy="wait")
        return self._inner.put_new(key, data)


if __name__ == "__main__":
    _serve()
