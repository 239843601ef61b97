"""The workers of one QC pool: who is there, what pays for them, and what becomes of those that end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from raykit.errors import RaykitError, Unknown
from raykit.fleet.qc_actor import Orders, clear
from raykit.fleet.qc_desk import Lost
from raykit.fleet.qc_hired import HiredWorker
from raykit.fleet.qc_lease import QcDoor, WorkerLease
from raykit.fleet.qc_settings import QcSettings
from raykit.qc.steer import End, Hired
from raykit.records import EndReason
from raykit.work.qc_worker import Rules

REFUSED_S: Final = 15.0
"""Between two tries to get a lease that was refused."""
UNANSWERED: Final = 12
"""So often nobody answers before that is a refusal: with what each try takes, about five minutes."""
HEARS_S: Final = 1.0
"""A process that is still there so long after it was to end does not hear."""
GONE_S: Final = 5.0
"""What a killed process may take to be gone."""
POLL_S: Final = 0.02
NEAR_PERMILLE: Final = 900
"""A process that died so close to what it may hold has died of that."""
CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """A worker that has been told to end."""

    worker: HiredWorker
    end: End
    since: float

    @property
    def lost(self) -> Lost:
        """What is said of the attempt that it had in hand, if it had one."""
        kind, limit, state = self.end.kind, self.worker.orders.memory_bytes, self.worker.state
        if kind == "lost" and limit and state and state.peak_bytes * 1000 > limit * NEAR_PERMILLE:
            kind = "memory"
        return Lost(kind=kind, why=self.end.why, at=time.time())

    def settle_at(self, now: float) -> tuple[WorkerLease, float, EndReason]:
        return self.worker.lease, now, "completed" if self.end.expected else "killed"


class QcCrew:
    """The workers of one pool. Used by one thread; times are those of the pool's own clock."""

    def __init__(
        self,
        root: str,
        experiment: str,
        run: str,
        launch: str,
        *,
        settings: QcSettings,
        door: QcDoor,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.workers: dict[str, HiredWorker] = {}
        self.lost: dict[str, Lost] = {}
        """Those that came to an end, until what they had in hand is accounted for."""
        self.failed_starts: list[str] = []
        """Why those in a row came to an end that have examined nothing."""
        self.refusal: RaykitError | None = None
        """Why none may be started now."""
        self._root = root
        self._experiment = experiment
        self._run = run
        self._launch = launch
        self._settings = settings
        self._door = door
        self._folder = folder / f"qc-{launch}"
        self._say = say
        self._ordinal = 1
        self._again = 0.0
        self._unanswered = 0
        """So often in a row nobody has said whether a worker is paid for."""
        self._memory_bytes = settings.memory_bytes
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
    def broken(self) -> RaykitError | None:
        """What a worker has met that no worker could work with."""
        return next((worker.broken for worker in self.workers.values() if worker.broken is not None), None)

    @property
    def settled(self) -> bool:
        """Nobody is there any more, and all that they have cost is written."""
        return not self.workers and not self._ending and not self._unsettled

    def hear(self, now: float) -> None:
        """Collect what they have answered, and keep paying for them."""
        for worker in self.workers.values():
            turns = worker.turns
            worker.hear(now)
            if worker.turns > turns:
                self.failed_starts = []
            worker.lease.keep(now)
            if worker.lease.refused is not None:
                worker.leave(worker.lease.refused)

    def may_start(self, now: float) -> bool:
        """Whether one may be started: no lease was just refused, and nobody was lost of whom nothing is known yet."""
        return now >= self._again and not self.lost and all(each.end.expected for each in self._ending)

    def start(self, suite: str, rules: Callable[[str], Rules], now: float) -> bool:
        """Start one more worker, if it is paid for; `rules` makes them from its lease."""
        lease = WorkerLease(
            self._door,
            f"{self._launch}-qc-{self._ordinal}",
            experiment=self._experiment,
            suite=suite,
            price=self._settings.price,
        )
        if not self._reserved(lease, now):
            return False
        if self._memory_bytes is None and not self._settings.gpus:
            self._memory_bytes = free_bytes() // (self._settings.slots + 1)
        name = f"qc-{self._launch}-{self._ordinal}"
        orders = Orders(
            root=self._root,
            experiment=self._experiment,
            run=self._run,
            suite=suite,
            worker=name,
            rules=rules(lease.name),
            folder=str(self._folder / name),
            memory_bytes=self._memory_bytes,
            bench=self._settings.bench,
        )
        self.workers[name] = HiredWorker(
            orders,
            actor=f"raykit-qc-{self._experiment}-{self._launch}-{self._ordinal}",
            settings=self._settings,
            lease=lease,
            now=now,
        )
        self._ordinal += 1
        return True

    def _reserved(self, lease: WorkerLease, now: float) -> bool:
        """Whether a worker is paid for; where nobody answers for long, that is a refusal, too."""
        try:
            lease.reserve(now)
        except RaykitError as error:
            self._again = now + REFUSED_S
            self._unanswered = self._unanswered + 1 if isinstance(error, Unknown) else UNANSWERED
            if self._unanswered >= UNANSWERED:
                if str(self.refusal) != str(error):
                    self._say(f"no QC worker may start: {error}")
                self.refusal = error
            return False
        self.refusal, self._unanswered = None, 0
        return True

    def work(self, name: str, now: float) -> None:
        """Let an idle worker work."""
        self.workers[name].work(now)

    def leave(self, why: str, *, but: str | None = None) -> None:
        """Let nobody take anything further, but those that ask what the suite `but` asks."""
        for worker in self.workers.values():
            if worker.orders.suite != but:
                worker.leave(why)

    def end(self, end: End, now: float) -> None:
        """End a worker; `reap` sees to what is left of it."""
        worker = self.workers.pop(end.name)
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
        clear(self._folder)

    def _settle(self) -> None:
        """Write what those that have ended have cost; what is not answered is tried again."""
        left = []
        for lease, ended, reason in self._unsettled:
            try:
                lease.settle(ended, reason=reason)
            except Unknown:
                left.append((lease, ended, reason))
            except RaykitError as error:
                self._say(f"what QC lease {lease.name} has cost could not be written: {error}")
        self._unsettled = left

    def account_for(self, looked_at: float, claimants: Collection[str]) -> None:
        """Forget those whose attempts are accounted for, as of a look that began then; `claimants` ever had one."""
        for name, lost in list(self.lost.items()):
            if lost.at < looked_at:
                del self.lost[name]
                if name not in claimants:
                    self.failed_starts.append(lost.why)


def free_bytes() -> int:
    """The memory that is free for one more process: of the machine, or of the container around it."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = int((CGROUP / "memory.max").read_text())
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free  # no container, or none with a bound
    return max(0, min(free, limit - used))
