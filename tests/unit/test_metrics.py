"""What is said to Ray's dashboard: plain facts come to samples, what is not known comes to none, and nothing raises.

covers RAY-19 RAY-08 DISP-05 DISP-06 DISP-07
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from money import ADA, Account, amount, line, planned

from raykit.fleet.follow import Followed, Glimpse
from raykit.fleet.metrics import (
    EVERY_S,
    METRICS,
    Dashboard,
    Facts,
    FleetFacts,
    Metric,
    QcFacts,
    RunFacts,
    SearchFacts,
    SetFacts,
    Spenders,
    money_of,
    run_of,
    trainers_of,
)
from raykit.pauses import InForce
from raykit.reconcile import RunState, fold
from raykit.records import MICRO, Beat, Held, Paused, RunEntry, Unit

RUNNING = RunFacts(experiment="a", phase="training", planned=80, recorded=12, committed=10, attempts=1)


def said(facts: Facts) -> dict[str, float]:
    """Every sample, by its name and the values of its labels."""
    found: dict[str, float] = {}
    for sample in facts.samples():
        assert set(sample.labels) == set(sample.metric.labels)
        key = ".".join([sample.metric.name.removeprefix("raykit_"), *sample.labels.values()])
        found[key] = found.get(key, 0.0) + sample.value
    return found


class Wall:
    """Takes what is said, as Ray would."""

    def __init__(self, breaks: str | None = None) -> None:
        self.values: dict[str, list[float]] = {}
        self.made: list[str] = []
        self._breaks = breaks

    def __call__(self, metric: Metric) -> Callable[[float, dict[str, str]], None]:
        self.made.append(metric.name)

        def take(value: float, labels: dict[str, str]) -> None:
            if metric.name == self._breaks:
                raise RuntimeError("no agent")
            self.values.setdefault(metric.name, []).append(value)

        return take


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# --- the catalogue ------------------------------------------------------------------------------------------


def test_names_have_units_and_labels_hold_no_ids() -> None:
    """RAY-19: base units, `_total` of counters only, and only labels whose values a plan or a closed list gives."""
    bounded = {"experiment", "set", "line", "kind", "state", "role", "term"}
    for metric in METRICS:
        assert re.fullmatch(r"raykit(_[a-z]+)+", metric.name), metric.name
        assert set(metric.labels) <= bounded, metric.name
        assert metric.labels[0] == "experiment", metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.says.endswith("."), metric.name
    names = [name for metric in METRICS for name in metric.exported]
    assert len(names) == len(set(names))
    assert not {"_ms", "_mb", "_minutes"} & {name[name.rfind("_") :] for name in names}


# --- money ----------------------------------------------------------------------------------------------------


def account_of(unit: Unit = "usd") -> Account:
    """Ten in all: a lease of three is settled with two, one of four goes on."""
    account = Account(unit)
    lines = [
        line("train", "target", 7),
        line("confirmation", "confirmation", 2),
        line("recovery", "recovery", 1),
    ]
    account.plan(planned("a", 10, lines, rates={"train": MICRO}), approve=True)
    account.spend("one", "a", "train", 3, 2)
    account.reserve("two", "a", "train", 4)
    return account


def test_money_is_said_by_line_with_its_reserves() -> None:
    """RAY-19: committed, reserved, remaining, reserve lines, in the account's unit and not in micro-units."""
    book = account_of().book
    facts = money_of(book, "a", [book.leases["two"], book.leases["one"]])
    assert facts is not None
    found = said(facts)
    train = {
        state: found[f"budget_usd.a.train.target.{state}"] for state in ("planned", "settled", "reserved")
    }
    assert train == {"planned": 7.0, "settled": 2.0, "reserved": 4.0}
    assert found["budget_usd.a.train.target.remaining"] == 1.0
    assert found["budget_usd.a.confirmation.confirmation.remaining"] == 2.0
    assert found["budget_usd.a.recovery.recovery.planned"] == 1.0
    assert found["ceiling_usd.a"] == 10.0
    assert found["reserve_left_usd.a"] == 3.0
    assert (
        found["spend_usd_per_hour.a"] == 1.0
    )  # one accelerator; the lease that has ended costs nothing more


def test_an_overrun_and_idle_machines_are_said() -> None:
    account = account_of()
    account.settle("two", 9)
    account.ask(lambda book: Held(experiment="a", pool="train", accelerators=8, rate=amount(2)))
    facts = money_of(account.book, "a", [])
    assert facts is not None
    found = said(facts)
    assert found["budget_usd.a.train.target.remaining"] == -4.0
    assert found["reserve_left_usd.a"] == 0.0
    assert found["spend_usd_per_hour.a"] == 16.0


def test_an_account_in_hours_says_hours_and_no_dollars() -> None:
    book = account_of("accelerator-hours").book
    facts = money_of(book, "a", [book.leases["two"]])
    assert facts is not None
    found = said(facts)
    assert found["budget_accelerator_hours.a.train.target.settled"] == 2.0
    assert found["ceiling_accelerator_hours.a"] == 10.0
    assert not [name for name in found if "usd" in name]


def test_who_has_spent_once_is_said_as_long_as_the_account_is_served() -> None:
    wall, clock, book = Wall(), Clock(), account_of().book
    spenders = Spenders(Dashboard(instrument=wall, clock=clock))
    spenders.tell(book, set())
    assert wall.values == {}, "of an experiment that nobody works on nothing is said"
    clock.now += EVERY_S
    spenders.tell(book, {"two"})
    assert wall.values["raykit_ceiling_usd"] == [10.0]
    clock.now += EVERY_S
    spenders.tell(book, set())
    assert wall.values["raykit_ceiling_usd"] == [10.0, 10.0]
    assert wall.values["raykit_spend_usd_per_hour"] == [1.0, 0.0]
    assert money_of(book, "of another account", []) is None


# --- a run ----------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_not_said() -> None:
    """DISP-07: unknown is no zero. Ray forgets what is not said again."""
    found = said(RUNNING)
    assert found["updates.a.recorded"] == 12.0
    absent = {"ratio", "updates_per_second", "development", "save_seconds", "checkpoint_bytes", "term_ratio"}
    assert not absent & {name.partition(".")[0] for name in found}
    broken = RunFacts(experiment="a", phase="gates", planned=80, recorded=None, committed=None, attempts=1)
    assert {name for name in said(broken) if name.startswith("updates.")} == {"updates.a.planned"}


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_value_that_is_no_number_is_not_said(value: float | None) -> None:
    facts = RunFacts(
        experiment="a",
        phase="training",
        planned=80,
        recorded=1,
        committed=0,
        attempts=1,
        ratio=value,
        terms={"fit": value, "other": 0.5},
        development={"error": value},
    )
    found = said(facts)
    assert "ratio.a" not in found and "development.a.error" not in found
    assert {name: count for name, count in found.items() if "term_ratio" in name} == {
        "term_ratio.a.other": 0.5
    }


def test_a_run_is_in_one_phase() -> None:
    found = said(RUNNING)
    phases = {name.rpartition(".")[2]: value for name, value in found.items() if name.startswith("run.")}
    assert phases.pop("training") == 1.0
    assert set(phases.values()) == {0.0} and len(phases) == 8


def test_a_heartbeat_is_no_update() -> None:
    """DISP-06: what a launch says to show that it is there moves no update."""
    state = fold([RunEntry(n=1, prev=None, at=0.0, by="test", nonce="n", events=(Beat(launch="f00d"),))])
    glimpse = Followed().glimpse(state, 80)
    found = said(run_of("a", state, Followed(), glimpse))
    assert found["updates.a.recorded"] == 0.0
    assert "updates.a.committed" not in found and "updates_per_second.a" not in found


def test_a_history_that_is_broken_has_no_recorded_update() -> None:
    state = RunState(broken="history has a gap", rows=7)
    found = said(run_of("a", state, Followed(), Followed().glimpse(state, 80)))
    assert "updates.a.recorded" not in found


# --- who works ------------------------------------------------------------------------------------------------


def glimpse_of(phase: str, **traits: Any) -> Glimpse:
    known: dict[str, Any] = {
        "update": 0,
        "updates": 80,
        "updates_per_s": None,
        "ratio": None,
        "committed": None,
    }
    return Glimpse(phase=phase, attempt=1, **{**known, **traits})


def asked(phase: str, *, paused_for_s: float | None = None, **traits: Any) -> dict[str, float]:
    """The states that ranks are said to be in, and causes of a pause."""
    pause = None
    if paused_for_s is not None:
        event = Paused(scope="role:train", cause="person", reason="a test", person=ADA)
        pause = InForce(pause=event, at=1000.0 - paused_for_s)
    facts = trainers_of("a", "train", [glimpse_of(phase, **traits)], workers=4, pause=pause, now=1000.0)
    return {name.partition(".")[2]: value for name, value in said(facts).items() if value}


def test_a_setup_is_no_work() -> None:
    """DISP-05: before its ranks work, a launch has no workers; and a run that is over has none."""
    assert asked("starting") == asked("completed") == asked("failed") == {}
    assert asked("gates") == asked("training") == {"a.train.running": 4.0}
    assert asked("starting", again=True) == {"a.train.resuming": 4.0}


def test_a_pause_is_pausing_then_overdue_then_paused() -> None:
    """RAY-08: a worker that misses its boundary is overdue, and not paused."""
    cause = {"a.train.person": 1.0}
    assert asked("stopping", paused_for_s=5.0) == {"a.train.pausing": 4.0, **cause}
    assert asked("training", paused_for_s=5.0) == {"a.train.pausing": 4.0, **cause}
    assert asked("stopping", paused_for_s=61.0) == {"a.train.overdue": 4.0, **cause}
    assert asked("stopping", paused_for_s=61.0, updates_per_s=0.1) == {"a.train.pausing": 4.0, **cause}
    assert asked("stopping", paused_for_s=101.0, updates_per_s=0.1) == {"a.train.overdue": 4.0, **cause}
    assert asked("paused", paused_for_s=5.0) == {"a.train.paused": 4.0, **cause}
    assert asked("stopping") == {"a.train.pausing": 4.0}  # a signal asks too


def test_ranks_of_several_trials_are_counted_together() -> None:
    glimpses = [glimpse_of(phase) for phase in ("training", "gates", "starting", "stopping")]
    facts = trainers_of("a", "search", glimpses, workers=2, pause=None, now=0.0)
    found = {name: value for name, value in said(facts).items() if value}
    assert found == {"fleet_workers.a.search.running": 4.0, "fleet_workers.a.search.pausing": 2.0}


def test_no_pause_is_known_and_said() -> None:
    found = said(FleetFacts(experiment="a", role="qc", workers={"running": 2}))
    assert {name: value for name, value in found.items() if name.startswith("paused.")} == {
        f"paused.a.qc.{cause}": 0.0
        for cause in ("person", "ceiling", "replan", "defect", "premise", "qc", "exactness")
    }
    assert found["fleet_workers.a.qc.running"] == 2.0 and found["fleet_workers.a.qc.overdue"] == 0.0


# --- units and trials -------------------------------------------------------------------------------------------


def test_checks_are_counted_once_and_told_how_long_they_took() -> None:
    facts = QcFacts(experiment="a", counts={"pending": 2, "failed": 1}, oldest_s=None, took_s=[0.5, 1.5])
    found = said(facts)
    assert (found["qc_units_total.a"], found["qc_unit_seconds.a"]) == (2.0, 2.0)
    assert (found["qc_requests.a.pending"], found["qc_requests.a.passed"]) == (2.0, 0.0)
    assert found["qc_oldest_pending_seconds.a"] == 0.0  # nothing is open: that is known


def test_a_set_that_could_not_be_read_says_only_what_was_gained() -> None:
    facts = SetFacts(
        experiment="a", name="s", rows={"produced": 9.0, "peak_bytes": 1e9}, units=2.0, seconds=3.0
    )
    found = said(facts)
    assert found["generate_rows_total.a.s.produced"] == 9.0 and found["generate_units_total.a.s"] == 2.0
    assert not [name for name in found if name.startswith("generate_units.")]
    read = said(SetFacts(experiment="a", name="s", counts={"open": 3}))
    assert (read["generate_units.a.s.open"], read["generate_units.a.s.parked"]) == (3.0, 0.0)


def test_the_rows_of_a_search_sum_to_what_was_registered() -> None:
    facts = SearchFacts(
        experiment="a",
        trials={"waiting": 3, "running": 2, "completed": 2, "stopped-by-scheduler": 1},
        repeats={"waiting": 4},
        best=0.25,
        reports=7,
    )
    found = said(facts)
    assert sum(value for name, value in found.items() if name.startswith("trials.")) == 12.0
    assert found["trials.a.trial.refused-by-budget"] == 0.0 and found["search_best.a"] == 0.25
    assert found["search_reports_total.a"] == 7.0
    assert "search_best.a" not in said(SearchFacts(experiment="a", trials={}, best=math.nan))


# --- saying it ----------------------------------------------------------------------------------------------------


def test_what_holds_is_said_again_and_only_when_it_is_time() -> None:
    wall, clock, made = Wall(), Clock(), []
    dashboard = Dashboard(instrument=wall, clock=clock)

    def facts() -> list[Facts | None]:
        made.append(clock.now)
        return [RUNNING, None]

    for now in (0.0, 0.5, 1.9, 2.0, 2.5, 4.1):
        clock.now = now
        dashboard.tell(facts)
    assert made == [0.0, 2.0, 4.1]
    assert wall.values["raykit_attempts"] == [1.0, 1.0, 1.0]
    assert len(wall.made) == len(set(wall.made)), "each instrument is made once"


def test_what_was_gained_is_said_at_once_and_nothing_gained_is_nothing() -> None:
    wall = Wall()
    dashboard = Dashboard(instrument=wall, clock=Clock())
    for gained in (2.0, 0.0, 3.0):
        dashboard.publish(SetFacts(experiment="a", name="s", units=gained))
    assert wall.values == {"raykit_generate_units_total": [2.0, 3.0]}


def test_a_dashboard_that_does_not_work_is_said_once_and_hurts_nobody() -> None:
    wall, lines, clock = Wall(breaks="raykit_updates"), list[str](), Clock()
    dashboard = Dashboard(lines.append, instrument=wall, clock=clock)
    for now in (0.0, 10.0, 20.0):
        clock.now = now
        dashboard.tell(lambda: [RUNNING])
        dashboard.publish(RUNNING)
    assert lines == ["the dashboard hears nothing more of this process: RuntimeError: no agent"]


def test_facts_that_cannot_be_made_hurt_nobody() -> None:
    lines = list[str]()
    dashboard = Dashboard(lines.append, instrument=Wall(), clock=Clock())
    dashboard.tell(lambda: [1 // 0])  # type: ignore[list-item]
    assert len(lines) == 1 and "ZeroDivisionError" in lines[0]
