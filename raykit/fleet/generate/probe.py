"""Asking the real producer before a contract is frozen: a process of its own, paid for, watched, ended by its id."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.exceptions import RayError

from raykit.errors import BudgetError, DeadlineError, GateError, RaykitError, Unknown
from raykit.fleet.generate.task import GENERATE
from raykit.fleet.pool import process
from raykit.fleet.pool.actor import PLACE, clear, place_in
from raykit.fleet.pool.hired import options_of
from raykit.fleet.pool.lease import PoolDoor, Price, WorkerLease
from raykit.ids import Digest
from raykit.records import EndReason
from raykit.shards.contract import Draft
from raykit.steer import FIRST_S, START_S
from raykit.store import open_store
from raykit.store.place import gone, this_place
from raykit.train.granted import keep_to_granted
from raykit.train.surroundings import stay_inside

if TYPE_CHECKING:
    from raykit.work.gen_probe import Probe

POLL_S: Final = 0.25
GONE_S: Final = 5.0
"""What a killed process may take to be gone."""
TRIES: Final = 2
"""A process that is lost says nothing of the producer: another one is asked."""
WAITS_S: Final = (2.0, 10.0, None)
"""What does not answer for a while is no fault of the recipe's: so long until it is asked again, three times in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked. It travels to the process as it is."""

    root: str
    draft: Draft
    teacher: str
    """The key of its manifest."""
    folder: str
    """Private, for the code that is imported."""
    options: Mapping[str, Mapping[str, Any]]
    data: Digest | None
    """The members of the splits, where quality is measured."""
    source: Mapping[str, tuple[str, ...]] | None
    memory_bytes: int | None = None
    gpus: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was answered, and what it took to get there beside the rows themselves."""

    probe: Probe
    setup_ms: int


class ProbeActor:
    """Asks the producer, once."""

    def __init__(self, asking: Asking) -> None:
        self._granted = keep_to_granted()
        self._asking = asking
        process.lose_first()
        folder = Path(asking.folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / PLACE).write_bytes(this_place().to_bytes())

    def ask(self) -> Probe | RaykitError:
        """What the producer says, or what refuses it."""
        from raykit.work.gen_probe import Real, probe

        stay_inside()
        asking = self._asking
        code = Path(asking.folder) / "code"
        code.mkdir(mode=0o700, exist_ok=True)
        try:
            if asking.memory_bytes is not None:
                process.hold_at_most(asking.memory_bytes, gpus=asking.gpus)
            found = probe(
                open_store(asking.root),
                asking.draft,
                asking.teacher,
                code,
                options=asking.options,
                real=None if asking.data is None else Real(data=asking.data, source=asking.source),
            )
            self._granted.require()
            return found
        except RaykitError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a recipe may raise anything: it is what a person has to see
            return refusal_of(error)


def refusal_of(error: Exception) -> RaykitError:
    """What an exception of the recipe means for the set: `Unknown` if it is no fault of the recipe's."""
    from raykit.work.failing import is_of_the_example, kind_of

    said = f"the recipe cannot make the first unit: {type(error).__name__}: {str(error)[:300]}"
    if kind_of(error) not in ("memory", "corrupt") and not is_of_the_example(error):
        return Unknown(
            said, field="recipe.generate", remedy="the same command, once what it needs answers again"
        )
    return GateError(said, field="recipe.generate", rule="rows of the first unit, in every way of decoding")


class Prober:
    """One producer, asked on this launch's account. Used by one thread."""

    def __init__(
        self,
        asking: Asking,
        *,
        launch: str,
        door: PoolDoor,
        price: Price,
        gpus: float,
        wants: Mapping[str, Any],
        deadline_s: float | None,
        say: Callable[[str], None],
    ) -> None:
        """`deadline_s` is what one unit may take, `wants` what its process asks Ray for beside a CPU and `gpus`."""
        self._asking = asking
        self._launch = launch
        self._door = door
        self._price = price
        self._gpus = gpus
        self._wants = wants
        self._limit_s = START_S + (2 + len(asking.options)) * (deadline_s or FIRST_S)
        self._say = say

    def ask(self, stop: Callable[[], str | None]) -> Asked | None:
        """What the producer says; None if `stop` gave a reason to leave it.

        Raises:
            GateError: the recipe gives no rows, or not what a set could be made of.
            PlanError: the recipe cannot be opened.
            ApprovalError: a person has to approve the money first.
            BudgetError: the lease is not paid for, or not any longer.
            CorruptError: stored bytes do not match their digests.
            Unknown: the store, or something that the recipe needs, did not answer, however often it was tried.
            DeadlineError: it did not come to an end in time.
            RaykitError: its process was lost, whenever it was tried.
        """
        lost = 0
        for n, wait_s in enumerate(WAITS_S):
            try:
                answer = self._ask(n, stop)
            except RayError as error:
                lost += 1
                words = (
                    str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
                )
                self._say(f"the process that asks the producer was lost: {words}")
                if lost == TRIES:
                    break
                continue
            if not isinstance(answer, Unknown):
                return answer
            if wait_s is None:
                raise answer
            self._say(f"{answer}; asking again in {wait_s:g} s")
            if self._rest(wait_s, stop):
                return None
        raise RaykitError(f"the process that asks the producer was lost {lost} times", remedy="raykit logs")

    @staticmethod
    def _rest(wait_s: float, stop: Callable[[], str | None]) -> bool:
        """Wait; whether `stop` gave a reason to leave it meanwhile."""
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            if stop() is not None:
                return True
            time.sleep(POLL_S)
        return False

    def _ask(self, n: int, stop: Callable[[], str | None]) -> Asked | Unknown | None:
        draft = self._asking.draft
        lease = WorkerLease(
            self._door,
            f"{self._launch}-{GENERATE.role}-probe{n}",
            experiment=draft.experiment,
            role=GENERATE.role,
            contract=draft.teacher,
            price=self._price,
        )
        lease.reserve(time.monotonic())
        name = f"raykit-{GENERATE.role}-{draft.experiment}-{self._launch}-probe{n}"
        actor, reason = None, "killed"
        try:
            options = options_of(name, gpus=self._gpus, wants=self._wants)
            actor = ray.remote(ProbeActor).options(**options).remote(self._asking)
            asked = self._wait(actor, lease, stop)
            reason = "completed"
            return asked
        finally:
            self._end(actor)
            lease.settle(time.monotonic(), reason=_reason(reason))

    def _wait(self, actor: Any, lease: WorkerLease, stop: Callable[[], str | None]) -> Asked | Unknown | None:
        began, call = time.monotonic(), actor.ask.remote()
        while not ray.wait([call], timeout=POLL_S)[0]:
            now = time.monotonic()
            lease.keep(now)
            if now >= lease.paid_until:
                raise BudgetError(lease.refused or "what is paid for has ended", field="generate")
            if now - began > self._limit_s:
                raise DeadlineError(
                    f"the producer has not made a first unit in {self._limit_s:.0f} s",
                    field="generate.deadline_s",
                )
            if stop() is not None:
                return None
        answer = ray.get(call)
        if isinstance(answer, Unknown):
            return answer
        if isinstance(answer, RaykitError):
            raise answer
        made_ms = sum(each.took_ms for each in answer.measured)
        return Asked(probe=answer, setup_ms=max(0, int((time.monotonic() - began) * 1000) - made_ms))

    def _end(self, actor: Any) -> None:
        """End its process, and see it gone."""
        folder = Path(self._asking.folder)
        place = place_in(folder)
        if actor is not None:
            ray.kill(actor, no_restart=True)
        until = time.monotonic() + GONE_S
        while place is not None and gone(place) is False and time.monotonic() < until:
            if time.monotonic() > until - GONE_S / 2:
                try:
                    os.kill(place.pid, signal.SIGKILL)
                except ProcessLookupError:
                    break
            time.sleep(0.02)
        clear(folder)


def _reason(text: str) -> EndReason:
    return "completed" if text == "completed" else "killed"
