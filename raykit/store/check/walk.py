"""The walk over every object of a store: experiments, their runs, examinations and synthetic sets, the fleet, the
money, the registry, and what digests name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from raykit.records import (
    CanaryPassed,
    Commit,
    Contracted,
    ExperimentEntry,
    FleetEntry,
    Generated,
    GivenUp,
    Locked,
    Record,
)
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.check.candidates import check_candidates
from raykit.store.check.contents import check_contents, read_lock
from raykit.store.check.logs import ReadLog, read_log
from raykit.store.check.money import check_money
from raykit.store.check.people import ActRules
from raykit.store.check.qc import check_qc
from raykit.store.check.report import Report
from raykit.store.check.runs import Started, TrialRun, check_run
from raykit.store.check.search import Around, check_searches
from raykit.store.check.view import Tell, View
from raykit.store.commit import MANIFEST


def check(store: ObjectStore, *, read_data: bool, tell: Tell = lambda done, total: None) -> Report:
    """Hold the whole store against what it promises. Writes nothing.

    Without `read_data`, records are read whole and data (segments, checkpoints, code, members) by size only.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    view = View(store, read_data=read_data, tell=tell)
    logs = {name: _experiment(view, name) for (name,) in view.parts("experiment")}
    locked = {name: _locked(log) if log.whole else None for name, log in logs.items()}
    started: list[Started] = []
    commits: dict[str, dict[str, Sequence[Commit] | None]] = defaultdict(dict)
    trials: dict[str, dict[str, TrialRun]] = defaultdict(dict)
    for name, run in view.parts("experiment", "run"):
        looked = check_run(view, name, run, locked[name])
        started += looked.started
        commits[name][run] = looked.commits
        if looked.trial is not None:
            trials[name][run] = looked.trial
    # After the runs: the checkpoints that are examined were committed before.
    for name, log in logs.items():
        events = list(log.events())
        check_qc(view, name, events, commits[name], _sets(view, name, events, whole=log.whole))
    _acts(view, read_log(view, layout.fleet_log(), FleetEntry), own=None)
    # After the runs: what they name in a ledger was written there before.
    charged = check_money(view, locked, started)
    candidates = check_candidates(view)
    # After the runs, the money and the registry: what a row came to is said once all of them have it.
    for name in logs:
        around = Around(locked=locked[name], runs=trials[name], charged=charged, candidates=candidates)
        check_searches(view, name, around)
    check_contents(view)
    return view.report()


def _sets(view: View, name: str, events: Sequence[tuple[str, Record]], *, whole: bool) -> frozenset[str]:
    """The synthetic sets of an experiment, if it has any: see `check_generation`."""
    of_sets = Contracted | CanaryPassed | GivenUp | Generated
    told = any(isinstance(event, of_sets) for _, event in events)
    has_inputs = any(k.kind == "inputs" and k.parts["experiment"] == name for k in view.known.values())
    if not (told or has_inputs or view.sets.get(name)):
        return frozenset()
    # imported here, and not above: a store without sets is checked without NumPy
    from raykit.store.check.generation import check_generation

    return check_generation(view, name, events, whole=whole)


def _experiment(view: View, name: str) -> ReadLog[ExperimentEntry]:
    """The log of an experiment, once all that it has locked has been looked at."""
    view.counts["experiments"] += 1
    log = read_log(view, layout.experiment_log(name), ExperimentEntry)
    _acts(view, log, own=f"experiment:{name}")
    for event in _locked(log):
        for key in (
            layout.plan(name, event.plan, "plan.lock"),
            layout.plan(name, event.plan, "plan.toml"),
            layout.code(name, event.code),
            layout.environment(name, event.environment),
            layout.membership(name, event.data, MANIFEST),
        ):
            view.missing(key, "what is locked is kept", "I1")
        _lock(view, name, event.plan)
    return log


def _locked(log: ReadLog[ExperimentEntry]) -> list[Locked]:
    return [event for _, event in log.events() if isinstance(event, Locked)]


def _lock(view: View, name: str, plan: str) -> None:
    """What else a lock names: the file that some tables are from, and the base."""
    lock = read_lock(view, name, plan)
    if lock is None or lock.digest != plan:  # changed bytes name nothing
        return
    if lock.shared is not None:
        view.missing(layout.plan(name, plan, "shared.toml"), "what is locked is kept", "I1")
    if lock.base is not None and (layout.known(lock.base.key) is None or view.size(lock.base.key) is None):
        found = f"{lock.base.key} is missing"
        view.find(lock.base.key, "the base of a locked plan is kept", found, "I1")


def _acts(view: View, log: ReadLog[ExperimentEntry] | ReadLog[FleetEntry], *, own: str | None) -> None:
    rules = ActRules(own)
    if log.whole:
        for key, event in log.events():
            for broken in rules.take(event):
                view.find(key, broken.rule, broken.found, broken.invariant)
