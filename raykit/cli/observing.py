"""`raykit observe`: a diagnosis as a tree, walked one test at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import output
from raykit.cli.options import (
    DEFAULT_ROOT,
    Json,
    Root,
    Scripted,
    again,
    at_root,
    holds_store,
    is_scripted,
    open_root,
    person_of,
    store_line,
    words,
)
from raykit.cli.subject import Subject, Target, subject_of
from raykit.errors import InvalidInput, ReviewError

if TYPE_CHECKING:
    from raykit.plan import Diagnosis
    from raykit.records import Observed
    from raykit.review.diagnosis import Group, Ranked
    from raykit.review.finding import Finding
    from raykit.store.base import ObjectStore
    from raykit.store.learned import Known, Told


# --- observe ------------------------------------------------------------------------------------------------


def observe(
    target: Target,
    test: Annotated[
        str | None, typer.Argument(metavar="[TEST]", help="The test that was run; without it: the tree.")
    ] = None,
    hypothesis: Annotated[
        str | None, typer.Option("--as", metavar="HYPOTHESIS", help="Whose prediction was seen.")
    ] = None,
    other: Annotated[bool, typer.Option("--other", help="It is what no hypothesis predicted.")] = False,
    saw: Annotated[str | None, typer.Option("--saw", metavar="TEXT", help="What was seen.")] = None,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="How it is read, where several predict it.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", envvar="RAYKIT_PERSON", help="The person who says so."),
    ] = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """A plan's diagnosis as a tree; with TEST, what that test has shown, and which branch is taken.

    An observation removes hypotheses, at the inputs that its test covered. It proves nothing.

    Raises:
        InvalidInput: what was seen, or who says so, is missing; or the words claim a proof.
        NotFoundError: there is no such experiment, test or hypothesis.
        PlanError: the plan file is wrong.
        ReviewError: the test cannot decide anything as it is written, or what was predicted of an observed one has
            changed.
        CorruptError: what is stored is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.review.diagnosis import observe as read_as

    found = open_root(root)
    store, opened = found.store, not holds_store(found)
    subject = subject_of(store, target)
    diagnosis = _diagnosis(subject)
    told = None
    if test is None:
        _require_test(hypothesis, other or None, saw, note)
    else:
        if (hypothesis is None) != other:
            raise InvalidInput(
                "--as and --other exclude each other" if other else "whose prediction was it?",
                field="--as",
                rule="--as HYPOTHESIS, or --other for what none of them predicted",
                remedy=f"--as {next(iter(diagnosis.hypotheses))}",
            )
        _require_sound(subject, diagnosis, test)
        reading = partial(
            read_as,
            diagnosis,
            plan=subject.plan,
            test=test,
            hypothesis=hypothesis,
            saw=words(saw, field="--saw", what="an observation says what was seen"),
            note=None if note is None else words(note, field="--note", what="an empty note"),
            person=person_of(by),
            scripted=is_scripted(scripted),
        )
        told = _learn(store, subject, diagnosis, reading)
    tree = _Tree.of(store, subject, diagnosis)
    if as_json:
        output.print_json(
            tree.record()
            if told is None
            else {**told.event.plain(), "new": told.new, "new_store": opened, **tree.ends()}
        )
    else:
        at = at_root(root)
        output.print_lines(tree.lines(at) if told is None else _said(told, tree, at))
        output.print_lines(store_line(found, opened and told is not None))


def _diagnosis(subject: Subject) -> Diagnosis:
    if subject.diagnosis is None:
        raise InvalidInput(
            f"the plan of {subject.name} has no [diagnosis]",
            field="diagnosis",
            rule="hypotheses that compete, and the tests that tell them apart",
        )
    return subject.diagnosis


def _require_test(*said: object) -> None:
    """The tree alone is shown only to whoever says nothing of a test."""
    if any(each is not None for each in said):
        raise InvalidInput(
            "which test has shown it?",
            field="TEST",
            rule="the name of a test of the plan",
            remedy="raykit observe NAME lists them",
        )


def _require_sound(subject: Subject, diagnosis: Diagnosis, test: str) -> None:
    """Nothing is observed by a test that is refused as it is written."""
    from raykit.review.diagnosis import flaws

    for flaw in flaws(diagnosis, holdouts=subject.holdouts):
        mine = flaw.field.startswith((f"diagnosis.tests.{test}.", "diagnosis.hypotheses"))
        if mine and flaw.item != "PLAN-55":  # a note may be given with the observation
            raise ReviewError(
                f"{flaw.title}: {flaw.problem}", field=flaw.field, rule=flaw.rule, remedy=flaw.remedy
            )


def _learn(
    store: ObjectStore, subject: Subject, diagnosis: Diagnosis, reading: partial[Observed]
) -> Told[Observed]:
    """Write down what an observation comes to, given all that were made before it."""
    from raykit.records import Observed
    from raykit.store.learned import learn

    return learn(
        store,
        subject.name,
        lambda known: reading(earlier=[event for event in known if isinstance(event, Observed)]),
        opens=subject.file,
        person=reading.keywords["person"],
        at=time.time(),
    )


def _said(told: Told[Observed], tree: _Tree, at: str) -> Iterator[str]:
    from raykit.review.diagnosis import outcome

    seen = told.event
    script = " (scripted)" if seen.scripted else ""
    yield f"  observed{again(told.new)} by {seen.person}{script}: {seen.test}"
    yield f"  saw      {seen.saw}"
    yield f"  means    as {', '.join(seen.supports) or 'nobody'} predicted; {outcome(seen)}"
    if seen.note is not None:
        yield f"  note     {seen.note}"
    yield f"  left     {', '.join(tree.left) or 'no hypothesis'}; nothing is proved"
    yield f"  branch   {seen.next}"
    yield from tree.foot(at)


# --- the picture --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """A diagnosis with what has been observed so far."""

    subject: Subject
    diagnosis: Diagnosis
    observed: tuple[Known[Observed], ...]
    refused: tuple[Finding, ...]
    """Why its tests decide nothing as they are written, or what of them is not as it was predicted."""

    @classmethod
    def of(cls, store: ObjectStore, subject: Subject, diagnosis: Diagnosis) -> _Tree:
        from raykit.records import Observed
        from raykit.review.diagnosis import flaws, rewritten
        from raykit.store.learned import Known, read_learned

        observed = tuple(
            Known(experiment=each.experiment, at=each.at, event=each.event)
            for each in read_learned(store, subject.name)
            if isinstance(each.event, Observed)
        )
        changed = rewritten(diagnosis, [each.event for each in observed])
        return cls(
            subject=subject,
            diagnosis=diagnosis,
            observed=tuple(each for each in observed if each.event.test in diagnosis.tests),
            refused=(*flaws(diagnosis, holdouts=subject.holdouts), *changed),
        )

    @property
    def events(self) -> list[Observed]:
        return [each.event for each in self.observed]

    @property
    def left(self) -> tuple[str, ...]:
        from raykit.review.diagnosis import standing

        return standing(self.diagnosis, self.events)

    @property
    def next(self) -> Ranked | None:
        from raykit.review.diagnosis import next_test

        return next_test(self.diagnosis, self.events)

    def ends(self) -> dict[str, Any]:
        """Where the tree stands, as JSON values."""
        from raykit.review.diagnosis import ended

        following = self.next
        return {
            "left": list(self.left),
            "next_test": following and following.name,
            "next_test_cost_usd": following and following.test.cost_usd,
            "ended": ended(self.diagnosis, self.events),
        }

    def record(self) -> dict[str, Any]:
        """The whole tree as JSON values."""
        from raykit.review.diagnosis import rank

        return {
            "experiment": self.subject.name,
            "plan": self.subject.plan,
            "hypotheses": {name: h.plain() for name, h in self.diagnosis.hypotheses.items()},
            "tests": [self._test_record(each) for each in rank(self.diagnosis)],
            "flaws": [
                {"item": flaw.item, "field": flaw.field, "problem": flaw.problem, "rule": flaw.rule}
                for flaw in self.refused
            ],
            **self.ends(),
        }

    def _test_record(self, ranked: Ranked) -> dict[str, Any]:
        return {
            "name": ranked.name,
            "does": ranked.test.does,
            "cost_usd": ranked.test.cost_usd,
            "covers": dict(ranked.test.covers),
            "pairs": ranked.pairs,
            "flag": ranked.flag,
            "branches": [
                {
                    "prediction": group.prediction,
                    "hypotheses": list(group.hypotheses),
                    "next": {name: ranked.test.branch(name) for name in group.hypotheses},
                }
                for group in ranked.groups
            ],
            "seen": [{**e.event.plain(), "at": e.at} for e in self.observed if e.event.test == ranked.name],
        }

    def lines(self, at: str) -> Iterator[str]:
        """The whole tree as text: the tests in the order in which they are worth running."""
        from raykit.review.diagnosis import rank

        known = self.diagnosis.hypotheses
        gone = [name for name in known if name not in self.left]
        removed = f", removed: {', '.join(gone)}" if gone else ""
        left = ", ".join(self.left) or "none"
        yield f"  {self.subject.name} {output.DOT} {len(known)} hypotheses, left: {left}{removed}"
        width = max(len(name) for name in known)
        for name, hypothesis in known.items():
            mark = "x" if name in gone else " "
            yield f"  {mark} {name:<{width}}  {hypothesis.says}{self._rule(name)}"
        for number, ranked in enumerate(rank(self.diagnosis), 1):
            yield ""
            yield from self._test_lines(number, ranked)
        for flaw in self.refused:
            yield ""
            yield f"  refused  {flaw.field}: {flaw.problem}"
        yield ""
        yield from self.foot(at)

    def _rule(self, name: str) -> str:
        after = self.diagnosis.hypotheses[name].stop_after
        failures = sum(name in (*seen.removed, *seen.failed) for seen in self.events)
        return f" (failed {failures} of {after})" if after > 1 or failures else ""

    def _test_lines(self, number: int, ranked: Ranked) -> Iterator[str]:
        covered = ", ".join(f"{key} = {value}" for key, value in ranked.test.covers.items())
        flag = f"   {ranked.flag}" if ranked.flag else ""
        yield f"  {number}  {ranked.name}  {output.usd(ranked.test.cost_usd)}  ({covered}){flag}"
        yield f"     {ranked.test.does}"
        seen = [each for each in self.observed if each.event.test == ranked.name]
        for i, group in enumerate(ranked.groups):
            came = any(set(each.event.supports) & set(group.hypotheses) for each in seen)
            yield from self._branch_lines(ranked, group, came=came, last=i == len(ranked.groups) - 1)
        for each in seen:
            yield from self._seen_lines(each)

    def _branch_lines(self, ranked: Ranked, group: Group, *, came: bool, last: bool) -> Iterator[str]:
        mark = ">" if came else " "
        yield f"   {mark} {'`' if last else '|'}- {' '.join(group.prediction.split())}"
        branches: dict[str, list[str]] = {}
        for name in group.hypotheses:
            shown = name if name in self.left else f"({name})"
            branches.setdefault(ranked.test.branch(name) or "", []).append(shown)
        for branch, names in branches.items():
            yield f"     {' ' if last else '|'}    {', '.join(names)} -> {branch}"

    def _seen_lines(self, each: Known[Observed]) -> Iterator[str]:
        from raykit.review.diagnosis import outcome

        day = time.strftime("%Y-%m-%d", time.localtime(each.at))
        yield f"     seen {day} by {each.event.person}: {each.event.saw}"
        yield f"          {outcome(each.event)}"

    def foot(self, at: str) -> Iterator[str]:
        """What comes next, or how it can end here."""
        from raykit.review.diagnosis import ended

        target, following = self.subject.typed, self.next
        if following is not None:
            repeat = "again: " if following.name in {seen.test for seen in self.events} else ""
            cost = output.usd(following.test.cost_usd)
            yield f"  next     {repeat}{following.name}, {cost}: {following.test.does}"
            yield f'  -> raykit observe {target} {following.name} --as HYPOTHESIS --saw "..." --by NAME{at}'
            return
        yield f"  next     no test: {_ENDS[ended(self.diagnosis, self.events) or '']}"
        yield f'  -> raykit conclude {target} --outcome no-full-run --says "..." --by NAME{at}'


_ENDS: Mapping[str, str] = {
    "one left": "one hypothesis is left, which nothing here has contradicted; a good end without any full run",
    "none left": "no hypothesis is left: what is so was not among them",
    "nothing tells them apart": "none that is left to run tells the rest apart",
}
