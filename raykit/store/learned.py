"""What was learned, kept: observations, conclusions, incidents, measured times, counted rows.

Each is an entry of its experiment's log, which the first of them may begin: a diagnosis runs before any training. What
one experiment has learned is found again from all others; it is one incident there, and never a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import Digest
from raykit.pauses import Learned
from raykit.plan.lock import digest_of_decision
from raykit.records import Concluded, ExperimentEntry, Measured, Noted, Observed, Record, RowsCounted
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log
from raykit.store.plans import newest_stored_lock

L = TypeVar("L", bound=Learned)
E = TypeVar("E", bound=Record)

NEGATIVE = ("worse", "equivalent", "invalid", "no-full-run")
"""Outcomes of an idea that came to nothing. `unresolved` is no answer, and not a no."""


# --- saying it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Generic[L]):
    """What an act led to: the event that is in the log, and whether it was written now."""

    event: L
    new: bool
    earlier: tuple[Learned, ...]
    """What had been learned before it."""


def learn(
    store: ObjectStore,
    experiment: str,
    decide: Callable[[Sequence[Learned]], L],
    *,
    opens: bool = False,
    person: str,
    at: float,
) -> Told[L]:
    """Append what `decide` makes of all that was learned so far; to say the same twice writes it once.

    With `opens`, the experiment need not be there yet: this begins its log.

    Raises:
        UnsafeNameError: the experiment's name is not a safe one.
        NotFoundError: there is no such experiment.
        CorruptError: its log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    log = _log(store, experiment, by=person)
    if not log.refresh() and not opens:
        raise NotFoundError(
            f"nothing is known of an experiment {experiment} in {store.url}: a plan that was only checked leaves "
            "nothing there",
            field="NAME",
            value=experiment,
            rule="an experiment that was launched, or the file of its plan",
            remedy="say it of the plan's file instead, such as plan.toml",
        )
    told: list[Told[L]] = []

    def once(entries: Sequence[ExperimentEntry]) -> list[Record]:
        known = tuple(event for _, event in _learned(entries))
        event = decide(known)
        before = next((seen for seen in reversed(known) if about(seen) == about(event)), None)
        if isinstance(before, type(event)) and _said(before) == _said(event):
            told[:] = [Told(event=before, new=False, earlier=known)]
            return []
        told[:] = [Told(event=event, new=True, earlier=known)]
        return [event]

    log.append(once, at=at)
    return told[0]


def about(event: Learned) -> tuple[str, ...]:
    """What an event is about: of two of one experiment about the same, the later one counts."""
    match event:
        case Observed():
            what: tuple[str, ...] = (event.test,)
        case Concluded():
            what = (event.decision, event.contract, event.hypothesis or "")
        case Noted():
            what = (event.kind, event.says)
        case Measured():
            what = (event.what, event.pool)
        case RowsCounted():
            what = (event.source,)
    return (event.event, *what)


def _said(event: Learned) -> dict[str, object]:
    """What an event says, whoever says it. What follows from earlier ones, or is the plan's, is not said by anybody."""
    return event.model_dump(
        exclude={"person", "scripted", "removed", "failed", "hypotheses", "predicts", "next_by"}
    )


# --- reading it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Known(Generic[E]):
    """One thing that was learned: by which experiment, and when."""

    experiment: str
    at: float
    event: E


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Everything that was learned in one store, and what of it could not be read."""

    store: str
    known: tuple[Known[Learned], ...]
    """In the order of time."""
    looked_at: tuple[str, ...]
    """Experiments whose log was read."""
    unread: tuple[str, ...]
    """Experiments whose log is damaged."""

    def of(self, *kinds: type[E]) -> Iterator[Known[E]]:
        """What was learned of some kinds."""
        for each in self.known:
            for kind in kinds:
                if isinstance(each.event, kind):
                    yield Known(experiment=each.experiment, at=each.at, event=each.event)

    def negatives(self) -> list[Known[Concluded]]:
        """Conclusions that an idea came to nothing; what the same experiment concluded later counts instead."""
        newest = {(each.experiment, *about(each.event)): each for each in self.of(Concluded)}
        return [each for each in newest.values() if each.event.outcome in NEGATIVE]

    def incidents(self) -> list[Known[Noted]]:
        """What went wrong once, somewhere."""
        return [each for each in self.of(Noted) if each.event.kind == "incident"]


def read_learned(store: ObjectStore, experiment: str) -> tuple[Known[Learned], ...]:
    """What one experiment has learned, in order.

    Raises:
        UnsafeNameError: its name is not a safe one.
        CorruptError: its log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    entries = _log(store, experiment, by="reader").refresh()
    return tuple(Known(experiment=experiment, at=at, event=event) for at, event in _learned(entries))


def read_lessons(store: ObjectStore) -> Lessons:
    """What every experiment of a store has learned. A log that is damaged is named, and hides no other.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    known: list[Known[Learned]] = []
    looked_at, unread = [], []
    for name in _experiments(store):
        try:
            known += read_learned(store, name)
            looked_at.append(name)
        except CorruptError:
            unread.append(name)
    known.sort(key=lambda each: each.at)
    return Lessons(store=store.url, known=tuple(known), looked_at=tuple(looked_at), unread=tuple(unread))


def negatives(store: ObjectStore) -> list[tuple[str, Concluded]]:
    """Every idea that came to nothing, with the experiment that tried it.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    return [(each.experiment, each.event) for each in read_lessons(store).negatives()]


def incidents(store: ObjectStore) -> list[tuple[str, Noted]]:
    """Everything that went wrong once, with the experiment that it happened to.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    return [(each.experiment, each.event) for each in read_lessons(store).incidents()]


def alike(
    concluded: Concluded,
    *,
    decision: Digest | None = None,
    contract: Digest | None = None,
    hypotheses: Sequence[str] = (),
) -> tuple[str, ...]:
    """What an earlier conclusion has in common with an idea: `decision`, `setting`, `hypothesis`."""
    wanted = {" ".join(text.split()).casefold() for text in hypotheses}
    tried = " ".join((concluded.hypothesis or "").split()).casefold()
    same = {
        "decision": concluded.decision == decision,
        "setting": concluded.contract == contract,
        "hypothesis": bool(tried) and tried in wanted,
    }
    return tuple(name for name, holds in same.items() if holds)


# --- how something was chosen -------------------------------------------------------------------------------


def selection_history(
    store: ObjectStore, decision: Digest, *, own: str | None = None
) -> tuple[Known[Observed | Concluded | Noted], ...]:
    """How whatever is chosen for a decision came to be chosen: ideas screened and dropped, tests run, conclusions.

    It is printed beside a final comparison, so that nobody takes what was selected for what was found at once.
    `own` is an experiment that belongs to the decision though nothing of it was locked yet.

    Raises:
        CorruptError: a log or a lock is damaged.
        StoreUnavailableError: the store did not answer.
    """
    found: list[Known[Observed | Concluded | Noted]] = []
    for name in _experiments(store):
        learned = read_learned(store, name)
        if name == own or decision in _decisions(store, name, learned):
            found += [
                Known(experiment=name, at=each.at, event=each.event)
                for each in learned
                if isinstance(each.event, Observed | Concluded)
                or (isinstance(each.event, Noted) and each.event.kind == "selection")
            ]
    return tuple(sorted(found, key=lambda each: each.at))


def _decisions(store: ObjectStore, experiment: str, learned: Sequence[Known[Learned]]) -> Iterator[Digest]:
    """The decisions that an experiment answers to, by its lock and by what people concluded of it."""
    lock = newest_stored_lock(store, experiment)
    if lock is not None and isinstance(text := lock.settings.get("decision"), str):
        yield digest_of_decision(text)
    for each in learned:
        if isinstance(each.event, Concluded):
            yield each.event.decision


# --- inside -------------------------------------------------------------------------------------------------


def _log(store: ObjectStore, experiment: str, *, by: str) -> Log[ExperimentEntry]:
    return Log(store, layout.experiment_log(experiment), ExperimentEntry, by=by)


def _learned(entries: Sequence[ExperimentEntry]) -> Iterator[tuple[float, Learned]]:
    for entry in entries:
        for event in entry.events:
            if isinstance(event, Learned):
                yield entry.at, event


def _experiments(store: ObjectStore) -> list[str]:
    known = (layout.known(listed.key) for listed in store.list(layout.experiments()))
    return sorted({found.parts["experiment"] for found in known if found is not None})
