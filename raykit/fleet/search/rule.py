"""When a row is stopped: Tune's own rules, asked with stand-ins for its trials.

A stand-in is known by its row, so that a driver that was killed can tell a new rule everything that the old one had
heard. What is learned that way is never judged: a ruling that was lost with the old driver is not made up for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

from raykit.fleet.search.job import Report
from raykit.plan.tables import Scheduler

_TIME, _VALUE = "update", "value"


@dataclass(frozen=True, slots=True)
class _StandIn:
    """What Tune's rules ask of a trial."""

    trial_id: str


class _Alone:
    """What Tune's rules ask of its controller: nothing waits behind a trial that is judged."""

    def get_live_trials(self) -> tuple[()]:
        return ()


class Rule:
    """One of Tune's rules. Used by one thread at a time."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        mode: Literal["min", "max"],
        updates: int,
        spared: Collection[str] = (),
    ) -> None:
        """`spared` are runs that go through all of their updates whatever they report: others are held against them."""
        self._name = scheduler.name
        self._updates = updates
        self._spared = frozenset(spared)
        self._rule = _rule_of(scheduler, mode, updates)
        self._trials: dict[str, _StandIn] = {}
        self._stopped: set[str] = set()

    def learn(self, report: Report) -> None:
        """Tell it of a report that was heard before; nothing is judged."""
        trial = self._trial(report.run)
        self._rule.on_trial_complete(_Alone(), trial, _plain(report))
        self._rule.on_trial_add(_Alone(), trial)  # one of the rules forgets a trial that has completed

    def judge(self, report: Report) -> str | None:
        """Why a row is to stop after this report; None if it goes on. Told once, it is not told again."""
        if report.run in self._stopped:
            return None
        trial = self._trial(report.run)
        if report.update >= self._updates or report.run in self._spared:
            self.learn(report)
            return None
        said = self._rule.on_trial_result(_Alone(), trial, _plain(report))
        if said != TrialScheduler.STOP:
            return None
        self._stopped.add(report.run)
        return f"{self._name}: {report.value:.6g} at update {report.update:,} is behind the others"

    def _trial(self, run: str) -> _StandIn:
        if run not in self._trials:
            self._trials[run] = _StandIn(run)
            self._rule.on_trial_add(_Alone(), self._trials[run])
        return self._trials[run]


def _rule_of(scheduler: Scheduler, mode: str, updates: int) -> Any:
    grace = min(scheduler.grace_updates, updates)
    if scheduler.name == "asha":
        assert scheduler.reduction is not None
        return AsyncHyperBandScheduler(
            time_attr=_TIME,
            metric=_VALUE,
            mode=mode,
            max_t=updates,
            grace_period=grace,
            reduction_factor=scheduler.reduction,
            brackets=1,
            stop_last_trials=False,
        )
    assert scheduler.least is not None
    return MedianStoppingRule(
        time_attr=_TIME,
        metric=_VALUE,
        mode=mode,
        grace_period=grace,
        min_samples_required=scheduler.least,
        hard_stop=True,
    )


def _plain(report: Report) -> dict[str, float]:
    return {_TIME: report.update, _VALUE: report.value}
