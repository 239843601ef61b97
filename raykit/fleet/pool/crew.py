"""The workers of one pool: who is there, what pays for them, and what becomes of those that end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from raykit.budget.room import UNIT_S
from raykit.errors import RaykitError, Unknown
from raykit.fleet.pool.actor import Orders, Task, clear
from raykit.fleet.pool.desk import Lost
from raykit.fleet.pool.hired import HiredWorker, options_of
from raykit.fleet.pool.lease import WorkerLease
from raykit.fleet.pool.settings import Hiring
from raykit.records import EndReason
from raykit.steer import End, Hired

REFUSED_S: Final = 15.0
"""Between two tries to get a lease that was refused."""
UNHEARD_S: Final = 3.0
"""After nobody has answered for the money, nobody is asked for so long: a round has to do other things, too."""
UNANSWERED: Final = 12
"""So often nobody answers before that is a refusal: with what each try takes, about five minutes."""
HEARS_S: Final = 1.0
"""A process that is still there so long after it was to end does not hear."""
GONE_S: Final = 5.0
"""What a killed process may take to be gone."""
POLL_S: Final = 0.02
NEAR_PERMILLE: Final = 900
"""A process that died so close to what it may hold has died of that."""
PEAK: Final = "peak_bytes"
"""In a tally: of this the greatest counts, and of all else the sum."""
CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """A worker that has been told to end."""

    worker: HiredWorker
    end: End
    since: float

    @property
    def lost(self) -> Lost:
        return _lost(self.worker, self.end)

    def settle_at(self, now: float) -> tuple[WorkerLease, float, EndReason]:
        return self.worker.lease, now, "completed" if self.end.expected else "killed"


def _lost(worker: HiredWorker, end: End) -> Lost:
    """What is said of the attempt that it had in hand, if it had one."""
    kind, limit, state = end.kind, worker.orders.memory_bytes, worker.state
    if kind == "lost" and limit and state and state.peak_bytes * 1000 > limit * NEAR_PERMILLE:
        kind = "memory"
    return Lost(kind=kind, why=end.why, at=time.time(), turns=worker.turns)


class Crew:
    """The workers of one pool. Used by one thread; times are those of the pool's own clock."""

    def __init__(self, hiring: Hiring) -> None:
        self.workers: dict[str, HiredWorker] = {}
        self.lost: dict[str, Lost] = {}
        """Those that came to an end, until what they had in hand is accounted for."""
        self.failed_starts: list[str] = []
        """Why those in a row came to an end that have come to nothing."""
        self.refusal: RaykitError | None = None
        """Why none may be started now."""
        self.unit_s = UNIT_S
        """What one more unit takes: nobody begins who is paid for less."""
        self._deserted = False
        """Whoever closes the pool does not wait for what is still under way."""
        self._hiring = hiring
        self._next = 1
        """The number of the next worker."""
        self._tally_of_ended: dict[str, float] = {}
        self._word = hiring.kind.word
        self._say = hiring.say
        self._again = 0.0
        self._ask_at = 0.0
        """Before that nobody is asked to keep or to settle a lease."""
        self._unanswered = 0
        """So often in a row nobody has said whether a worker is paid for."""
        self._memory_bytes = hiring.settings.memory_bytes
        self._ending: list[_Ending] = []
        self._unsettled: list[tuple[WorkerLease, float, EndReason]] = []

    def view(self, now: float) -> tuple[Hired, ...]:
        """What the next step is worked out from."""
        return tuple(worker.view(now) for worker in self.workers.values())

    @property
    def names(self) -> frozenset[str]:
        """Those that are there, or not yet seen to be gone: nobody else says what becomes of what they have in hand."""
        return frozenset(self.workers) | {ending.end.name for ending in self._ending}

    @property
    def tally(self) -> Mapping[str, float]:
        """What all workers that ever were there have come to, as far as it was heard."""
        return _added([self._tally_of_ended, *(worker.tally for worker in self.workers.values())])

    @property
    def broken(self) -> RaykitError | None:
        """What a worker has met that no worker could work with."""
        return next((worker.broken for worker in self.workers.values() if worker.broken is not None), None)

    @property
    def empty(self) -> bool:
        """Nobody is there any more."""
        return not self.workers and not self._ending

    @property
    def settled(self) -> bool:
        """Nobody is there any more, and all that they have cost is written."""
        return self.empty and not self._unsettled

    def hear(self, now: float) -> None:
        """Collect what they have answered, and keep paying for them."""
        for worker in self.workers.values():
            if self._deserted:
                return
            turns = worker.turns
            worker.hear(now)
            if worker.turns > turns:
                self.failed_starts = []
            if self._may_ask and not worker.lease.keep(now, unit_s=self.unit_s):
                self._unheard()
            if worker.lease.refused is not None:
                worker.leave(worker.lease.refused)

    def may_start(self, now: float) -> bool:
        """Whether one may be started: no lease was just refused, and nobody was lost of whom nothing is known yet."""
        return now >= self._again and not self.lost and all(each.end.expected for each in self._ending)

    def start(self, contract: str, task: Callable[[str], Task], now: float) -> bool:
        """Start one more worker, if it is paid for; `task` makes what it does, from its lease."""
        if self._deserted or now < self._again:
            return False
        hiring, n = self._hiring, self._next
        lease = WorkerLease(
            hiring.door,
            hiring.lease(n),
            experiment=hiring.experiment,
            role=hiring.kind.role,
            contract=contract,
            price=hiring.settings.price,
        )
        if not self._reserved(lease, now):
            return False
        orders = self._orders(n, task(lease.name))
        options = options_of(hiring.actor(n), gpus=hiring.settings.gpus, wants=hiring.settings.wants)
        self.workers[orders.worker] = HiredWorker(orders, options, lease=lease, now=now)
        self._next += 1
        return True

    def _orders(self, n: int, task: Task) -> Orders:
        hiring, settings = self._hiring, self._hiring.settings
        if self._memory_bytes is None and not settings.gpus:
            self._memory_bytes = free_bytes() // (settings.slots + 1)
        name = hiring.worker(n)
        return Orders(
            root=hiring.root,
            experiment=hiring.experiment,
            run=hiring.run,
            worker=name,
            folder=str(hiring.own_folder / name),
            task=task,
            memory_bytes=self._memory_bytes,
            gpus=settings.gpus,
        )

    def _reserved(self, lease: WorkerLease, now: float) -> bool:
        """Whether a worker is paid for; where nobody answers for long, that is a refusal, too."""
        share = max(1, self._hiring.settings.slots - len(self.workers))
        try:
            lease.reserve(now, unit_s=self.unit_s, share=share)
        except RaykitError as error:
            self._again = now + REFUSED_S
            self._unanswered = self._unanswered + 1 if isinstance(error, Unknown) else UNANSWERED
            if self._unanswered >= UNANSWERED:
                if str(self.refusal) != str(error):
                    self._say(f"no {self._word} worker may start: {error}")
                self.refusal = error
            return False
        self.refusal, self._unanswered = None, 0
        return True

    def work(self, name: str, now: float) -> None:
        """Let an idle worker work."""
        self.workers[name].work(now)

    def leave(self, why: str, *, but: str | None = None) -> None:
        """Let nobody take anything further, but those that work under the contract `but`."""
        for worker in self.workers.values():
            if worker.orders.task.contract != but:
                worker.leave(why)

    def lost_of(self, end: End) -> Lost:
        """What is to be said of a worker that is going to be ended."""
        return _lost(self.workers[end.name], end)

    def end(self, end: End, now: float) -> None:
        """End a worker; `reap` sees to what is left of it."""
        worker = self.workers.pop(end.name)
        self._tally_of_ended = _added([self._tally_of_ended, worker.tally])
        worker.end()
        self._ending.append(_Ending(worker=worker, end=end, since=now))

    def reap(self, now: float) -> None:
        """See to those that are ending: kill who does not hear, settle and clear up after who is gone."""
        still = []
        for ending in self._ending:
            if now - ending.since > HEARS_S:
                ending.worker.force()
            if ending.worker.is_gone:
                if not ending.end.expected:
                    self.lost[ending.end.name] = ending.lost
                self._unsettled.append(ending.settle_at(now))
                clear(ending.worker.folder)
            else:
                still.append(ending)
        self._ending = still
        self._settle()

    def end_all(self, why: str) -> None:
        """End everyone now, and see them gone; whoever is not after a while cannot be ended from here."""
        now = time.monotonic()
        for name in list(self.workers):
            self.end(End(name=name, why=why, kind="infrastructure"), now)
        for ending in self._ending:
            ending.worker.force()
        end = now + GONE_S
        while self._ending and time.monotonic() < end:
            self.reap(time.monotonic())
            time.sleep(POLL_S)
        clear(self._hiring.own_folder)

    def desert(self) -> None:
        """Kill every process that is there, without a word to Ray, and settle nothing: the next start does.

        May be called by another thread than the crew's own, which does nothing further then.
        """
        self._deserted = True
        for worker in [*list(self.workers.values()), *(ending.worker for ending in list(self._ending))]:
            worker.force()
        clear(self._hiring.own_folder)

    @property
    def _may_ask(self) -> bool:
        return not self._deserted and time.monotonic() >= self._ask_at

    def _unheard(self) -> None:
        self._ask_at = time.monotonic() + UNHEARD_S

    def _settle(self) -> None:
        """Write what those that have ended have cost; once nobody answers, the others are not even asked about."""
        left = []
        for lease, ended, reason in self._unsettled:
            if not self._may_ask:
                left.append((lease, ended, reason))
                continue
            try:
                lease.settle(ended, reason=reason)
            except Unknown:
                self._unheard()
                left.append((lease, ended, reason))
            except RaykitError as error:
                self._say(f"what {self._word} lease {lease.name} has cost could not be written: {error}")
        self._unsettled = left

    def account_for(self, looked_at: float, claimants: Collection[str]) -> None:
        """Forget those whose attempts are accounted for, as of a look that began then; `claimants` ever had one."""
        for name, lost in list(self.lost.items()):
            if lost.at < looked_at:
                del self.lost[name]
                if name not in claimants and not lost.turns:
                    self.failed_starts.append(lost.why)


def _added(tallies: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for tally in tallies:
        for name, count in tally.items():
            so_far = found.get(name, 0.0)
            found[name] = max(so_far, count) if name == PEAK else so_far + count
    return found


def free_bytes() -> int:
    """The memory that is free for one more process: of the machine, or of the container around it."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free  # no container, or none with a bound
    return max(0, min(free, limit - used))
