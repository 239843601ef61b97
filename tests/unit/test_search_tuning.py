"""What Tune is given, without a Ray: rows handed out, reports judged once, starts that come back.

covers TUNE-05 TUNE-14 RAY-07 RAY-12
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler

from raykit.errors import BudgetError
from raykit.fleet.search.exchange import Exchange
from raykit.fleet.search.job import Back, Report
from raykit.fleet.search.rule import Rule
from raykit.fleet.search.training import TrialTraining
from raykit.fleet.search.trial import HANDED, Trial, back_of, report_of
from raykit.fleet.search.tuning import RowScheduler, RowSearcher
from raykit.plan.tables import Scheduler

ASHA = Scheduler(name="asha", grace_updates=10, reduction=2)
MEDIAN = Scheduler(name="median", grace_updates=10, least=2)


def report(run: str, update: int, value: float) -> Report:
    return Report(run=run, update=update, value=value)


def nothing(say: Any) -> None:
    """A job that says nothing."""


def rule(scheduler: Scheduler = ASHA, mode: Any = "min") -> Rule:
    return Rule(scheduler, mode=mode, updates=40)


# --- the rule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "worse"), [("min", 9.0), ("max", 0.1)])
def test_asha_stops_what_is_behind_at_a_rung(mode: str, worse: float) -> None:
    judge = rule(mode=mode)
    assert judge.judge(report("a", 10, 1.0)) is None  # the first at a rung has nobody to be behind
    assert judge.judge(report("b", 5, worse)) is None  # before the first rung nobody is judged
    why = judge.judge(report("b", 10, worse))
    assert why == f"asha: {worse:g} at update 10 is behind the others"
    assert judge.judge(report("b", 20, worse)) is None  # said once


def test_the_median_rule_waits_for_enough_others() -> None:
    judge = rule(MEDIAN)
    assert judge.judge(report("a", 10, 1.0)) is None
    assert judge.judge(report("b", 10, 9.0)) is None  # one other is too few
    assert judge.judge(report("c", 10, 1.1)) is None
    assert judge.judge(report("d", 10, 9.0)) is not None
    assert judge.judge(report("d", 20, 9.0)) is None


@pytest.mark.parametrize("scheduler", [ASHA, MEDIAN])
def test_the_incumbent_and_repeats_are_never_stopped_and_others_are_held_against_them(
    scheduler: Scheduler,
) -> None:
    judge = Rule(scheduler, mode="min", updates=40, spared=["first", "again"])
    assert judge.judge(report("a", 10, 0.5)) is None
    assert judge.judge(report("first", 10, 1.0)) is None
    assert judge.judge(report("again", 10, 9.0)) is None
    assert judge.judge(report("b", 10, 8.0)) is not None


def test_a_row_at_its_last_update_is_never_stopped() -> None:
    judge = rule()
    assert judge.judge(report("a", 40, 1.0)) is None
    assert judge.judge(report("b", 40, 9.0)) is None


@pytest.mark.parametrize("scheduler", [ASHA, MEDIAN])
def test_what_is_learned_is_not_judged_and_weighs_the_same(scheduler: Scheduler) -> None:
    """A driver that was killed tells the new rule everything that the old one had heard."""
    old, new = rule(scheduler), rule(scheduler)
    heard = [report(run, 10, value) for run, value in (("a", 1.0), ("b", 1.1), ("c", 1.2))]
    for each in heard:
        old.judge(each)
        new.learn(each)
    new.learn(report("late", 10, 9.0))  # whatever the old one made of that was lost with it
    assert new.judge(report("late", 20, 1.0)) is None
    for value in (0.9, 9.0):
        run = f"d{value}"
        assert old.judge(report(run, 10, value)) == new.judge(report(run, 10, value))


# --- the exchange -------------------------------------------------------------------------------------------


def test_a_report_counts_once_however_often_it_comes() -> None:
    exchange = Exchange(rule())
    exchange.learn(report("a", 10, 1.0))
    exchange.heard(report("a", 10, 1.0))
    exchange.heard(report("b", 10, 9.0))
    exchange.heard(report("b", 10, 9.0))
    assert exchange.take_heard() == 1
    assert [ruling.report.run for ruling in exchange.take_rulings()] == ["b"]
    assert exchange.take_rulings() == []
    newest = exchange.newest("b")
    assert newest is not None and newest.update == 10


def test_what_tune_loses_comes_back_to_everyone_who_waits() -> None:
    exchange = Exchange(None)
    first, second = (exchange.hand("a", "tiny a", nothing) for _ in range(2))
    exchange.came_back(first, Back(failed="ValueError: no"))
    exchange.lose_all("Tune has ended")
    assert exchange.back(first) == Back(failed="ValueError: no")  # what was said first stays
    assert exchange.back(second) == Back(lost="Tune has ended")


def test_whoever_waits_for_a_start_is_woken() -> None:
    exchange = Exchange(None)
    serial = exchange.hand("a", "tiny a", nothing)
    threading.Timer(0.05, exchange.came_back, (serial, Back())).start()
    exchange.wait(30.0, serial)
    assert exchange.back(serial) == Back()


# --- the searcher and the scheduler -------------------------------------------------------------------------


@dataclass
class Asked:
    """What Tune passes of a trial."""

    config: dict[str, Any]

    def get_error(self) -> str:
        return "ActorDiedError: the process was killed\nmore"


def test_the_searcher_hands_out_what_was_admitted_and_nothing_else() -> None:
    exchange = Exchange(None)
    searcher = RowSearcher(exchange)
    serial = exchange.hand("trial-001", "tiny trial-001", nothing)
    config = searcher.suggest("t1")
    assert isinstance(config, dict) and config[HANDED].run == "trial-001"
    assert searcher.suggest("t2") is None  # nothing was admitted: nothing is made up
    searcher.on_trial_complete("t1", {"done": True})
    exchange.close()
    assert searcher.suggest("t3") == "FINISHED"
    assert exchange.back(serial) == Back()


def test_a_closed_exchange_still_hands_out_what_was_admitted() -> None:
    exchange = Exchange(None)
    exchange.hand("trial-001", "tiny trial-001", nothing)
    exchange.close()
    searcher = RowSearcher(exchange)
    assert isinstance(searcher.suggest("t1"), dict)
    assert searcher.suggest("t2") == "FINISHED"


def test_the_scheduler_always_goes_on_and_tells_why_a_process_died() -> None:
    exchange = Exchange(rule())
    scheduler, searcher = RowScheduler(exchange), RowSearcher(exchange)
    serial = exchange.hand("b", "tiny b", nothing)
    trial = Asked(searcher.suggest("t1"))
    for run, value in (("a", 1.0), ("b", 9.0)):
        said = scheduler.on_trial_result(None, trial, {"run": run, "update": 10, "value": value})
        assert said == TrialScheduler.CONTINUE
    assert [ruling.report.run for ruling in exchange.take_rulings()] == ["b"]
    assert scheduler.on_trial_result(None, trial, {"done": True}) == TrialScheduler.CONTINUE
    scheduler.on_trial_error(None, trial)
    searcher.on_trial_complete("t1", error=True)
    back = exchange.back(serial)
    assert back == Back(lost="its process was lost: ActorDiedError: the process was killed")


def test_what_tune_writes_down_of_them_is_nobody() -> None:
    """Tune pickles what it is given into notes that nothing reads; a lock does not go into a file."""
    exchange = Exchange(None)
    for each in (RowSearcher(exchange), RowScheduler(exchange)):
        assert pickle.loads(pickle.dumps(each)) is None


# --- one trial ----------------------------------------------------------------------------------------------


def steps(job: Any) -> list[dict[str, Any]]:
    """Everything that a trial with this job says."""
    exchange = Exchange(None)
    exchange.hand("trial-001", "tiny trial-001", job)
    trial = Trial.__new__(Trial)
    trial.setup({HANDED: exchange.take(0.0)})
    said = [trial.step()]
    while "done" not in said[-1]:
        said.append(trial.step())
    assert repr(trial) == "tiny trial-001"
    return said


def test_a_trial_says_every_report_and_how_it_ended() -> None:
    def job(say: Any) -> None:
        say(report("trial-001", 5, 0.5))
        say(report("trial-001", 10, 0.25))

    *reports, last = steps(job)
    assert [report_of(each) for each in reports] == [
        report("trial-001", 5, 0.5),
        report("trial-001", 10, 0.25),
    ]
    assert report_of(last) is None and back_of(last) == Back()


def test_a_refusal_and_a_failure_are_told_apart() -> None:
    def refused(say: Any) -> None:
        raise BudgetError("no money")

    def failed(say: Any) -> None:
        raise ValueError("no")

    assert back_of(steps(refused)[-1]) == Back(refused="budget: no money")
    assert back_of(steps(failed)[-1]) == Back(failed="ValueError: no")


def test_the_loop_of_a_run_sees_a_start_come_back() -> None:
    exchange = Exchange(None)
    exchange.learn(report("trial-001", 5, 0.5))
    made: list[dict[str, Any]] = []

    def make(**told: Any) -> Any:
        made.append(told)
        return nothing

    training = TrialTraining(exchange, run="trial-001", title="tiny trial-001", make=make)
    assert training.word == "not-started"
    training.start(storage=None, door=None, used=0)  # type: ignore[arg-type]
    assert training.word == "running" and training.error is None
    assert made == [{"serial": 1, "used": 0, "after": 5, "storage": None, "door": None}]
    exchange.came_back(1, Back(refused="budget: no money: at all"))
    assert training.word == "returned" and not training.failed
    assert isinstance(training.error, BudgetError) and training.why == "budget: no money: at all"
    training.start(storage=None, door=None, used=1)  # type: ignore[arg-type]
    exchange.came_back(2, Back(lost="its process was lost"))
    assert not training.failed and training.why == "its process was lost"
    training.start(storage=None, door=None, used=2)  # type: ignore[arg-type]
    exchange.came_back(3, Back(failed="ValueError: no"))
    assert training.failed and training.why == "ValueError: no" and training.starts == 3
