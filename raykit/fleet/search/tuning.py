"""What Ray Tune is given, and the thread that it runs in.

The searcher hands out rows of the registered table and nothing else; the scheduler passes on what trials report, and
answers CONTINUE: a row is stopped by its own run, which commits first. Tune never retries, and what it writes lies in
the private folder of this Ray: nothing reads it again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from raykit.fleet.search.exchange import Exchange
from raykit.fleet.search.job import Back, Handed
from raykit.fleet.search.trial import HANDED, Trial, back_of, report_of

IDLE_S: Final = 2.0
"""How long Tune waits at a time for the next row while no trial is under way. Its own pause would be a second."""
CLOSE_S: Final = 20.0

LOST: Final = "its process was lost"

_ENVIRONMENT: Final = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""Reports are in the store already, and every one is passed on at once; what Tune prints would be on this process's
stdout, where the result belongs."""


class RowSearcher(Searcher):  # type: ignore[misc] # Ray is not typed here
    """Hands out the rows that the driver has admitted; never makes up a configuration."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(metric=None, mode=None)
        self._exchange = exchange
        self._out: dict[str, Handed] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next row; None while there is none; FINISHED once there will be none."""
        handed = self._exchange.take(0.0 if self._out else IDLE_S)
        if handed is None:
            return str(self.FINISHED) if self._exchange.closed else None
        self._out[trial_id] = handed
        return {HANDED: handed}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial has ended; one whose process died has said nothing."""
        handed = self._out.pop(trial_id, None)
        if handed is not None:
            back = Back(lost=LOST) if error or result is None else back_of(result)
            self._exchange.came_back(handed.serial, back)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the table is in the store."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: see `save`."""

    def __reduce__(self) -> tuple[object, ...]:
        return _nobody, ()


class RowScheduler(FIFOScheduler):  # type: ignore[misc] # Ray is not typed here
    """Passes on what trials report, and lets them go on."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """The metric is the rule's own."""
        return True

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Tell the driver; what follows from it is the driver's."""
        report = report_of(result)
        if report is not None:
            self._exchange.heard(report)
        return str(TrialScheduler.CONTINUE)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A process has died: say why, before the searcher is told that it has."""
        handed: Handed = trial.config[HANDED]
        self._exchange.came_back(handed.serial, Back(lost=f"{LOST}: {_first_line(trial)}"))

    def __reduce__(self) -> tuple[object, ...]:
        return _nobody, ()


def _nobody() -> None:
    """What Tune finds in its own notes instead of these two, which nothing reads again: they belong to one process."""


class Tuning:
    """Tune's `fit` in a thread of its own."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        folder: Path,
        name: str,
        bundle: Mapping[str, float],
        concurrent: int,
    ) -> None:
        """`folder` is private; every trial takes one `bundle` of resources."""
        self._exchange = exchange
        self._folder = folder
        self._name = name
        self._bundle = dict(bundle)
        self._concurrent = concurrent
        self._thread = threading.Thread(target=self._work, name="raykit-tune", daemon=True)
        self.error: BaseException | None = None
        """What ended Tune, if anything did."""

    def start(self) -> None:
        """Start it; rows may have been handed out before."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Tune reads these once, and each is of this process alone: nothing else of Tune runs in it.
        os.environ.update(_ENVIRONMENT, TUNE_MAX_PENDING_TRIALS_PG=str(self._concurrent))
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trial that died is told by its run
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Hand out nothing more, and wait until what is out has ended, or so long."""
        self._exchange.close()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        try:
            self._tuner().fit()
            self._exchange.lose_all("Tune has ended")
        except BaseException as error:  # noqa: BLE001 - it belongs to the driver, which says what is lost
            self.error = error
            self._exchange.lose_all(f"Tune has ended: {type(error).__name__}: {error}")

    def _tuner(self) -> Any:
        return tune.Tuner(
            tune.with_resources(Trial, self._bundle),
            tune_config=tune.TuneConfig(
                search_alg=RowSearcher(self._exchange),
                scheduler=RowScheduler(self._exchange),
                num_samples=-1,
                reuse_actors=False,
                trial_name_creator=lambda trial: str(trial.config[HANDED]),
                trial_dirname_creator=_folder_name,
            ),
            run_config=tune.RunConfig(
                name=self._name,
                storage_path=str(self._folder),
                failure_config=tune.FailureConfig(max_failures=0, fail_fast=False),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                verbose=0,
                log_to_file=False,
            ),
        )


def _folder_name(trial: Any) -> str:
    handed: Handed = trial.config[HANDED]
    return f"{handed.run}-{handed.serial}"


def _first_line(trial: Any) -> str:
    said = str(trial.get_error() or "").strip()
    return said.splitlines()[0][:400] if said else "no message"
