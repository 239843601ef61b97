"""What runs in the process of one trial: a job in a thread, and what it reports, one report at a time.

Whatever way a job ends, the trial ends well as far as Tune is concerned, and says which way it was: only a process
that dies is an error there.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Final

from ray.tune import Trainable

from raykit.errors import RaykitError
from raykit.fleet.search.job import Back, Handed, Report
from raykit.train.granted import keep_to_granted

HANDED: Final = "handed"
_RUN, _UPDATE, _VALUE, _REFUSED, _FAILED = "run", "update", "value", "refused", "failed"


class Trial(Trainable):  # type: ignore[misc] # Ray is not typed here
    """One start of one row."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the job; it begins with the first step."""
        keep_to_granted()
        self._handed: Handed = config[HANDED]
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="raykit-trial", daemon=True)

    def step(self) -> dict[str, Any]:
        """The next report, or how it ended."""
        if self._thread.ident is None:
            self._thread.start()
        return self._said.get()

    def _work(self) -> None:
        try:
            self._handed.job(lambda report: self._said.put(_told(report)))
        except RaykitError as error:
            self._said.put({"done": True, _REFUSED: f"{error.kind}: {error}"})
        except BaseException as error:  # noqa: BLE001 - whatever it is, the driver has to hear of it
            self._said.put({"done": True, _FAILED: f"{type(error).__name__}: {error}"[:2000]})
        else:
            self._said.put({"done": True})

    def __repr__(self) -> str:
        return self._handed.title


def _told(report: Report) -> dict[str, Any]:
    return {_RUN: report.run, _UPDATE: report.update, _VALUE: report.value}


def report_of(result: dict[str, Any]) -> Report | None:
    """The report that a result is; None if it is none."""
    if _VALUE not in result:
        return None
    return Report(run=result[_RUN], update=result[_UPDATE], value=result[_VALUE])


def back_of(result: dict[str, Any]) -> Back:
    """How a trial ended, by its last result."""
    return Back(refused=result.get(_REFUSED), failed=result.get(_FAILED))
