"""The searches of one experiment: what was registered, what their logs say of it, and the runs of their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from raykit.errors import CorruptError
from raykit.ids import canonical
from raykit.plan.tables import Search, selection_of
from raykit.records import (
    Begun,
    Drawn,
    Driven,
    LetGo,
    Locked,
    Picked,
    Record,
    Registered,
    Reopened,
    RowEnded,
    SearchEntry,
    SearchRegistration,
)
from raykit.search import SEARCH, RowState, SearchState, Space, Worth, fold, pick, run_of, space_of
from raykit.store import layout
from raykit.store.attempts import sealed
from raykit.store.check.contents import read_lock
from raykit.store.check.logs import ReadLog, read_log
from raykit.store.check.money import Charged
from raykit.store.check.rules import Broken
from raykit.store.check.runs import TrialRun
from raykit.store.check.view import View
from raykit.store.search import reached, registration_from

REGISTERED = "a search is registered before its first trial"
ASKED = "the table is the one that its plan asks for"
INSIDE = "a setting is one of the space"
MADE = "a row ends as its run has it"
PAID = "a row costs what the ledger says of its run"
OWN = "a launch of a row is said before it takes the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What else has been read of the store by then."""

    locked: Sequence[Locked] | None
    """The plans of the experiment; None where its log is not whole."""
    runs: Mapping[str, TrialRun]
    charged: Mapping[tuple[str, str], Charged]
    candidates: Mapping[str, Registered] | None
    """None where the registry is not whole."""


def check_searches(view: View, experiment: str, around: Around) -> None:
    """Look at everything under `searches/`, and at the runs of trials."""
    names = {name for found, name in view.parts("experiment", "search") if found == experiment}
    paid = {run: charged for (name, run), charged in around.charged.items() if name == experiment}
    if around.runs or paid:
        names.add(SEARCH)  # a listing may be older than the table of the trials that it has
    looked = [_Search(view, experiment, name, around).check() for name in sorted(names)]
    if any(found.unreadable for found in looked):
        return  # what a trial is a row of cannot be told; it was said where it lies
    known = {run for found in looked for run in found.runs}
    for run in sorted(around.runs.keys() - known):
        key = layout.run_record(experiment, run)
        view.find(key, "a trial is a row of a registered table", f"{run} is none", "I1")
    for run in sorted(paid.keys() - known):
        view.find(paid[run].key, "what is paid for is a row of a registered table", f"{run} is none", "I6")


class Looked(NamedTuple):
    """The runs that the rows of one search are."""

    runs: frozenset[str] = frozenset()
    unreadable: bool = False


class SearchRules:
    """Takes the events of a search's log in their order and tells what each of them breaks, beside what the fold does.

    Whoever writes there asks `raykit.search.turn` first; here it is told once more, from the events alone.
    """

    def __init__(self, registration: SearchRegistration, space: Space) -> None:
        self._concurrent = registration.concurrent
        self._space = space
        self._in_hand: set[int] = set()
        self._launches: dict[str, int] = {}
        self._driver: str | None = None

    def take(self, event: Record) -> Iterator[Broken]:
        """What `event` breaks, given all that were taken before it."""
        match event:
            case Driven():
                self._driver = event.driver
            case LetGo():
                if event.driver != self._driver:
                    found = f"{event.driver} lets go, and {self._driver or 'nobody'} has it"
                    yield Broken("I4", "only who has a search lets go of it", found)
                self._driver = None
            case Drawn():
                yield from outside(event.row, event.params, self._space)
            case Begun():
                owner = self._launches.setdefault(event.launch, event.row)
                if owner != event.row:
                    found = f"{event.launch} begins row {event.row}, and has begun row {owner}"
                    yield Broken("I4", "a launch is of one row", found)
                self._in_hand.add(event.row)
                if len(self._in_hand) > self._concurrent:
                    found = f"row {event.row} is begun beside {len(self._in_hand) - 1} others"
                    yield Broken("I6", f"at most {self._concurrent} rows are live at once", found)
            case RowEnded():
                self._in_hand.discard(event.row)
            case Reopened():
                self._in_hand -= set(event.rows)


def outside(row: int, params: Mapping[str, object], space: Space) -> Iterator[Broken]:
    """What keeps a setting from being one of the space."""
    if params.keys() != space.keys():
        yield Broken("I14", INSIDE, f"row {row} sets {', '.join(sorted(params)) or 'nothing'}")
        return
    for name, value in params.items():
        if not space[name].holds(value):
            yield Broken("I14", INSIDE, f"row {row} has {name} = {value!r}")


class _Search:
    def __init__(self, view: View, experiment: str, name: str, around: Around) -> None:
        self._view = view
        self._experiment = experiment
        self._name = name
        self._around = around
        self._key = layout.search_registration(experiment, name)
        self._prefix = layout.search_log(experiment, name)

    def check(self) -> Looked:
        """Look at all of it, and tell which runs it has."""
        view = self._view
        log = read_log(view, self._prefix, SearchEntry)
        if view.size(self._key) is None:
            if log.entries:
                view.missing(self._key, REGISTERED, "I1")
            return Looked(unreadable=bool(log.entries))
        view.counts["searches"] += 1
        registration = self._registration()
        if registration is None:
            return Looked(unreadable=True)
        view.counts["trials"] += len(registration.rows)
        self._plan(registration)
        if log.whole:
            self._log(registration, log)
        return Looked(frozenset(run_of(row.row) for row in registration.rows))

    def _find(self, key: str, broken: Broken) -> None:
        self._view.find(key, broken.rule, broken.found, broken.invariant)

    # --- what was registered --------------------------------------------------------------------------------

    def _registration(self) -> SearchRegistration | None:
        view, key = self._view, self._key
        view.name([key])
        data = view.get(key, SearchRegistration.max_bytes)
        try:
            found = registration_from(data, key, self._experiment, self._name)
            if sealed(found) != data:
                raise CorruptError(f"{key} is not written as raykit writes it")
            space = space_of(found)
        except (CorruptError, ValueError) as error:
            view.find(key, "what a search is", str(error)[:400], "I2")
            return None
        for row in found.rows:
            if row.params is not None:
                for broken in outside(row.row, row.params, space):
                    self._find(key, broken)
        return found

    def _plan(self, found: SearchRegistration) -> None:
        """It is of a plan that was locked, and has the table that this plan asks for."""
        bound = (found.plan, found.contract, found.code, found.data)
        locked = self._around.locked
        if locked is not None and bound not in [(x.plan, x.contract, x.code, x.data) for x in locked]:
            self._view.find(
                self._key,
                "a search is of a plan that was locked",
                "the experiment's log locks no such plan",
                "I14",
            )
        lock = read_lock(self._view, self._experiment, found.plan)
        asked = None if lock is None or lock.digest != found.plan else lock.settings.get("search")
        if not isinstance(asked, Mapping):
            return
        try:
            search = Search.model_validate_json(canonical(asked))
        except ValueError:
            return  # of a version that asked for other things
        for what, was, wanted in _asked(found, search):
            if was != wanted:
                self._view.find(self._key, ASKED, f"{what} is {was}, and the plan says {wanted}", "I14")

    # --- what its log says ----------------------------------------------------------------------------------

    def _log(self, registration: SearchRegistration, log: ReadLog[SearchEntry]) -> None:
        rules = SearchRules(registration, space_of(registration))
        for key, event in log.events():
            for broken in rules.take(event):
                self._find(key, broken)
        # What was there before anything else of the store was read is held against it; what came later is not.
        listed = max(self._view.numbers[self._prefix], default=0)
        entries = [entry for _, entry in log.entries]
        try:
            before = fold(registration, entries[:listed])
            state = fold(registration, entries[listed:], before)
        except CorruptError as error:
            key = (
                layout.log_entry(self._prefix, error.value) if isinstance(error.value, int) else self._prefix
            )
            self._view.find(key, "a row is drawn, begun and ended once", error.message, "I11")
            return
        begun = {event.launch for _, event in log.events() if isinstance(event, Begun)}
        for row, then in zip(state.rows, before.rows, strict=True):
            self._row(state, row, begun, rests=row.ended is not None and row.ended == then.ended)
        self._picked(state, log)

    def _picked(self, state: SearchState, log: ReadLog[SearchEntry]) -> None:
        """The pick is what the table says, and its checkpoint is the candidate."""
        picked = state.picked
        if picked is None:
            return
        key = [key for key, event in log.events() if isinstance(event, Picked)][-1]
        if picked != pick(replace(state, picked=None), candidate=picked.candidate):
            found = f"row {picked.row} at {picked.value} is not what the table comes to"
            self._view.find(key, "the pick is the best of what was completed", found, "I8")
        if picked.candidate is None or self._around.candidates is None:
            return
        said = self._around.candidates.get(picked.candidate)
        ended = state.row(picked.row).ended
        if said is None:
            self._view.find(key, "what is picked is registered", f"{picked.candidate} is not", "I1")
        elif ended is None or said.manifest != ended.checkpoint:
            found = f"{picked.candidate} is not the checkpoint of row {picked.row}"
            self._view.find(key, "what is picked is registered", found, "I8")

    # --- its rows -------------------------------------------------------------------------------------------

    def _row(self, state: SearchState, row: RowState, begun: Collection[str], *, rests: bool) -> None:
        run = self._around.runs.get(row.run)
        if run is not None:
            self._launches(row, run, begun)
        if row.ended is None or not rests:
            return
        charged = self._around.charged.get((self._experiment, row.run))
        cost = row.ended.cost
        total, totals = (0, {0}) if charged is None else (charged.total, charged.totals)
        if cost != total and not (charged is not None and charged.learned and cost in totals):
            found = f"row {row.n} has cost {cost}, and the ledger has {total} for {row.run}"
            self._view.find(self._key, PAID, found, "I6")
        if row.launches:
            self._ended(state, row, row.ended, run)

    def _launches(self, row: RowState, run: TrialRun, begun: Collection[str]) -> None:
        own = {each.launch for each in row.launches}
        for key, launch in run.launches:
            if launch not in own:
                found = f"{launch} takes {row.run}, and {'began another row' if launch in begun else 'nothing says so'}"
                self._view.find(key, OWN, found, "I4")
        key = layout.run_record(self._experiment, row.run)
        if run.record is not None and run.record.setting != row.setting:
            self._view.find(
                key, "a trial has the setting of its row", f"{row.run} has {run.record.setting}", "I14"
            )

    def _ended(self, state: SearchState, row: RowState, ended: RowEnded, run: TrialRun | None) -> None:
        view, key = self._view, layout.run_log(self._experiment, row.run)
        if run is None:
            if ended.attempts:
                view.find(key, MADE, f"row {row.n} had {ended.attempts} attempts, and has no run", "I1")
            return
        if run.state is None:
            return  # told where it was found
        if ended.end == "completed" and not run.state.completed:
            view.find(key, MADE, f"row {row.n} is completed, and its run is not", "I11")
        if ended.attempts != len(run.state.attempts):
            found = f"row {row.n} ended after {ended.attempts} attempts of {len(run.state.attempts)}"
            view.find(key, "a row that has ended does not run again", found, "I11")
        if ended.checkpoint is not None and (ended.at, ended.checkpoint) not in [
            (commit.update, commit.sha256) for commit in run.state.commits
        ]:
            found = f"row {row.n} names {ended.checkpoint[:12]} of update {ended.at}, which is no commit of {row.run}"
            view.find(key, "the checkpoint that a row names exists", found, "I1")
        if view.read_data:
            self._value(state, row, ended, run)

    def _value(self, state: SearchState, row: RowState, ended: RowEnded, run: TrialRun) -> None:
        """The value is the one that the run's own history has."""
        assert run.state is not None
        lock = read_lock(self._view, self._experiment, state.registration.plan)
        if lock is None or lock.digest != state.registration.plan:
            return
        chosen = (lock.settings.get("run") or {}).get("select")
        key = layout.run_log(self._experiment, row.run)
        try:
            selection = None if chosen is None else selection_of(chosen)
            found = reached(self._view.store, run.state, state.registration.metric, selection)
        except CorruptError:
            return  # told where it was found
        said = Worth() if ended.value is None else Worth(ended.value, ended.at, ended.checkpoint)
        if ended.update != found.update:
            text = f"row {row.n} ended at update {ended.update}, and {row.run} has {found.update}"
        elif said != found.worth and (said.value is not None or ended.end != "failed"):
            has = found.worth
            text = (
                f"row {row.n} says {said.value} at update {said.at}, and its history {has.value} at {has.at}"
            )
        else:
            return  # one that failed may say nothing of what it had come to: nobody compares it
        self._view.find(key, MADE, text, "I4")


def _asked(found: SearchRegistration, search: Search) -> Iterator[tuple[str, object, object]]:
    """What a registration has, and what its plan asks for."""
    trials = [row for row in found.rows if row.kind == "trial"]
    repeats = [(row.rank, row.seed) for row in found.rows if row.kind == "repeat"]
    again = search.repeats
    yield "the number of trials", len(trials), search.trials
    wanted = (
        () if again is None else ((rank, seed) for rank in range(1, again.top + 1) for seed in again.seeds)
    )
    yield "the repeats by rank and seed", repeats, list(wanted)
    yield "the hypothesis", (found.hypothesis, found.predicts), (search.hypothesis, search.predicts)
    yield "the metric", (found.mode, found.metric), (search.mode, search.metric)
    yield "the sampler", dict(found.sampler), search.sampler.plain()
    yield "the number at once", found.concurrent, search.concurrent
    scheduler = None if search.scheduler is None else search.scheduler.plain()
    yield "the scheduler", found.scheduler and dict(found.scheduler), scheduler
    yield (
        "the space",
        {name: dict(span) for name, span in found.space.items()},
        {name: span.plain() for name, span in search.space.items()},
    )
    for row, params in zip(trials, search.first, strict=False):
        cast = {
            name: search.space[name].cast(value) for name, value in params.items() if name in search.space
        }
        yield f"row {row.row}", row.params and dict(row.params), cast
