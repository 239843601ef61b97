"""The gates of one attempt: what each compares, whether it has passed before, and what a failure asks for.

Dispatch stands before every attempt; `first` and `resume` before a run's first update. How they measure is in
`settings` and `probes`; rank 0 notes what they found in the run's log.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from raykit.errors import GateError
from raykit.exactness import RESUME_GATE
from raykit.reconcile import require_attempt
from raykit.records import GateResult, Record, RunEntry
from raykit.store.log import RunLog
from raykit.train import probes, settings
from raykit.train.build import Built
from raykit.train.gang import Gang
from raykit.train.inputs import Inputs, Task

_REMEDIES = {
    settings.DISPATCH: "put back what differs, or ask for what is there, in a plan of its own",
    "first": "look at the first batch, the loss terms and what the optimizer holds; raykit does not step on what is "
    "not finite",
    RESUME_GATE: "set run.resume to what was measured, or give the recipe a state_dict() for state of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The gates as one rank meets them."""

    task: Task
    gang: Gang
    log: RunLog
    inputs: Inputs
    facts: Mapping[str, str]
    """Of this rank and its gang: a gate that passed under others is measured again."""

    def passed(self) -> list[str]:
        """The gates that have passed on the same plan, code, data, base and facts, by what the log says."""
        results = self.log.state.gates
        return [name for name, gate in results.items() if gate.passed and gate.key == self._key(name)]

    def hold_to_plan(self, attempt: int, built: Built, loader: DataLoader[Any], updates: int) -> None:
        """Hold what is about to train for `updates` updates against what was asked for, before anything is trained.

        Raises:
            GateError: a setting is not what was requested, on some rank.
            FencedError: another launch or attempt owns the run.
            StoreUnavailableError: the store did not take the result.
        """
        live = settings.Live(
            lock=self.inputs.lock,
            setting=self.inputs.setting,
            plan=self.inputs.plan,
            params=self.inputs.params,
            built=built,
            loader=loader,
            updates=updates,
            gang=self.gang,
        )
        self._require_passed(settings.dispatch_gate(live, self._key(settings.DISPATCH)), attempt)

    def measure(
        self,
        attempt: int,
        built: Built,
        initial: dict[str, bytes],
        apart: Callable[[], AbstractContextManager[probes.World]],
        *,
        passed: Collection[str],
        harmless: Collection[str],
    ) -> None:
        """Do the gates of a run's start, but those that have `passed`.

        `initial` is every file of the state at update 0, `apart` makes a world that shares nothing with what is
        `built`, and `harmless` names state that does not matter.

        Raises:
            GateError: a gate failed.
            FencedError: another launch or attempt owns the run.
            StoreUnavailableError: the store did not take the result.
        """
        bench = probes.Bench(
            plan=self.inputs.plan, gang=self.gang, initial=initial, apart=apart, harmless=frozenset(harmless)
        )
        gc.freeze()  # what is here already is not what the gates' worlds leave to be collected, and there is much of it
        try:
            for name, gate in (("first", probes.first_gate), (RESUME_GATE, probes.resume_gate)):
                if name not in passed:
                    self._require_passed(gate(bench, self._key(name)), attempt, _ways_out(bench))
        finally:
            gc.unfreeze()
        probes.require_untouched(built, initial, self.gang)

    def _require_passed(self, result: GateResult, attempt: int, remedy: str | None = None) -> None:
        """Note what a gate found; `remedy` is what it asks for in place of what it always does.

        Raises:
            GateError: it failed.
        """
        if self.gang.leads:
            self._note(result, attempt)
        if not result.passed:
            raise GateError(
                f"the {result.gate} gate failed: {result.found}",
                rule=f"needs {self.inputs.plan.run.needed}" if result.gate == RESUME_GATE else None,
                remedy=remedy or _REMEDIES[result.gate],
            )

    def _note(self, result: GateResult, attempt: int) -> None:
        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            require_attempt(self.log.state, self.task.launch, attempt)
            return [result]

        self.log.append(decide, at=time.time())

    def _key(self, gate: str) -> str:
        task, base = self.task, self.inputs.base
        manifest = None if base is None else base.locked.manifest
        return probes.gate_key(gate, task.contract, task.code, task.data, dict(self.facts), manifest)


def _ways_out(bench: probes.Bench) -> str | None:
    """What can be done about state that a resume loses."""
    if bench.lost is None or not bench.lost.names:
        return None
    names = ", ".join(f'"{name}"' for name in bench.lost.names[: probes.MAX_TOLD])
    return (
        "save it, in the recipe's state_dict() and load_state_dict() or as a persistent buffer; or say that it does "
        f"not matter, run.harmless = [{names}] in the plan; or set run.resume to what was measured"
    )


__all__ = ["Gates"]
