"""Hypotheses that compete, and the cheap tests that tell them apart: a small tree that is walked one test at a time.

    flaws      what keeps the tests from deciding anything
    rank       which test comes first
    observe    what an observation removes, and which branch is taken
    rewritten  what of an observed test is not as it was predicted
    standing, next_test, ended     where the tree stands

An observation can only remove hypotheses, at the inputs that its test covered. Nothing here can say that
something is proved. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypedDict, TypeVar

from raykit.errors import InvalidInput, NotFoundError, ReviewError
from raykit.ids import Digest
from raykit.plan import Diagnosis, DiagnosticTest
from raykit.records import Observed
from raykit.review.claims import require_bounded
from raykit.review.finding import Finding

T = TypeVar("T")

UNPREDICTED = (
    "no hypothesis predicted this: stop here, look at what was seen together, and design a test for what would "
    "explain it"
)
"""What is done after an observation that is nobody's prediction."""

PREDATES = "what was predicted predates what was seen"

_HOLDOUT = re.compile(r"(?<![a-z])(sealed|report[ _-]?only|hold[ _-]?outs?|final[ _-]test)(?![a-z])", re.I)

Why = Literal["one left", "none left", "nothing tells them apart"]


# --- flaws --------------------------------------------------------------------------------------------------


def flaws(diagnosis: Diagnosis, *, holdouts: Collection[str] = ()) -> Iterator[Finding]:
    """Why the tests as they are written decide nothing, or look where they may not.

    `holdouts` are the sources of the splits that select nothing, by the names that the plan has for them.
    """
    if len(diagnosis.hypotheses) < 2:
        yield Finding(
            item="PLAN-45",
            title="hypotheses that compete",
            field="diagnosis.hypotheses",
            problem="names one explanation, and nothing that competes with it",
            rule="at least two hypotheses, and what each predicts of every test",
        )
        return
    cheapest = min(test.cost_usd for test in diagnosis.tests.values())
    for name, test in diagnosis.tests.items():
        yield from _test_flaws(diagnosis, name, test, cheapest=test.cost_usd == cheapest)
        yield from _holdout(name, test, holdouts)
    if not any(each.discriminates for each in rank(diagnosis)):
        yield Finding(
            item="PLAN-59",
            title="a test that can change the decision",
            field="diagnosis.tests",
            problem="no test has another prediction under another hypothesis, whatever it costs",
            rule="at least one test whose predicted observations differ between hypotheses",
            remedy="predicts = { " + ", ".join(f'{name} = "..."' for name in diagnosis.hypotheses) + " }",
        )


def _test_flaws(
    diagnosis: Diagnosis, name: str, test: DiagnosticTest, *, cheapest: bool
) -> Iterator[Finding]:
    at = f"diagnosis.tests.{name}"
    groups = _groups(test, tuple(diagnosis.hypotheses))
    if len(groups) == 1 and test.override is None:
        cheap = "; that it is the cheapest does not make it the test that discriminates" if cheapest else ""
        yield Finding(
            item="PLAN-46",
            title="low diagnostic value",
            field=f"{at}.predicts",
            problem=f"predicts the same under every hypothesis: {groups[0].prediction!r}{cheap}",
            rule="predictions that differ between at least two hypotheses",
            remedy=f"take {name} out, or say in {at}.override why it is worth its cost all the same",
        )
    elif len(groups) > 1 and test.override is None and _no_branch(diagnosis, test):
        yield Finding(
            item="PLAN-48",
            title="a branch after each result",
            field=f"{at}.next",
            problem="does the same whatever is seen, so that its result cannot change the decision",
            rule="what is done for each observation, and not the same for all of them",
        )
    shared = [group for group in groups if len(group.hypotheses) > 1]
    if len(groups) > 1 and shared and test.note is None:
        yield Finding(
            item="PLAN-55",
            title="one observation that several hypotheses predict",
            field=f"{at}.note",
            problem="; ".join(
                f"{' and '.join(each.hypotheses)} both predict {each.prediction!r}"
                if len(each.hypotheses) == 2
                else f"{', '.join(each.hypotheses)} all predict {each.prediction!r}"
                for each in shared
            ),
            rule="how that observation is read, since it does not tell them apart",
            remedy=f'{at}.note = "..."',
            asks=True,
        )


def _no_branch(diagnosis: Diagnosis, test: DiagnosticTest) -> bool:
    return len({_plain(test.branch(name) or "") for name in diagnosis.hypotheses}) == 1


def _holdout(name: str, test: DiagnosticTest, holdouts: Collection[str]) -> Iterator[Finding]:
    names = {_plain(source) for source in holdouts}
    for key, text in covers(test).items():
        if _HOLDOUT.search(key) or _HOLDOUT.search(text) or any(source in _plain(text) for source in names):
            yield Finding(
                item="PLAN-61",
                title="screening does not read the final holdout",
                field=f"diagnosis.tests.{name}.covers.{key}",
                problem=f"reads what is kept for the end: {key} = {text}",
                rule="rows of the train or the development split; the holdout stays untouched for what is chosen",
            )


# --- rank ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Hypotheses that predict the same observation."""

    prediction: str
    hypotheses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A test in the order in which it is worth running."""

    name: str
    test: DiagnosticTest
    groups: tuple[Group, ...]
    pairs: int
    """Pairs of hypotheses that it tells apart."""

    @property
    def discriminates(self) -> bool:
        """Whether any observation of it removes a hypothesis."""
        return self.pairs > 0

    @property
    def flag(self) -> str | None:
        """What is said beside it; None if there is nothing."""
        return None if self.discriminates else "low diagnostic value: the same under every hypothesis"


def rank(diagnosis: Diagnosis, among: Collection[str] | None = None) -> tuple[Ranked, ...]:
    """The tests, those that tell hypotheses apart first, then by cost, then by how many pairs they tell apart.

    `among` are the hypotheses that are left; all of them if it is not given.
    """
    left = tuple(name for name in diagnosis.hypotheses if among is None or name in among)
    ranked = []
    for name, test in diagnosis.tests.items():
        groups = _groups(test, left)
        pairs = sum(len(a.hypotheses) * len(b.hypotheses) for a, b in combinations(groups, 2))
        ranked.append(Ranked(name=name, test=test, groups=groups, pairs=pairs))
    return tuple(sorted(ranked, key=lambda each: (not each.discriminates, each.test.cost_usd, -each.pairs)))


def _groups(test: DiagnosticTest, hypotheses: Sequence[str]) -> tuple[Group, ...]:
    said: dict[str, list[str]] = {}
    for name in hypotheses:
        said.setdefault(_plain(test.prediction(name) or ""), []).append(name)
    return tuple(
        Group(prediction=test.prediction(names[0]) or "", hypotheses=tuple(names)) for names in said.values()
    )


def _plain(text: str) -> str:
    """A text without what does not change its meaning: case and blanks."""
    return " ".join(text.split()).casefold()


# --- observe ------------------------------------------------------------------------------------------------


def observe(
    diagnosis: Diagnosis,
    earlier: Sequence[Observed],
    *,
    plan: Digest,
    test: str,
    hypothesis: str | None,
    saw: str,
    note: str | None,
    person: str,
    scripted: bool,
) -> Observed:
    """What it means that `test` showed what `hypothesis` predicts; with None: something that nobody predicted.

    Hypotheses that predicted something else have failed a necessary condition. Those that have failed as often as
    their `stop_after` says are removed.

    Raises:
        NotFoundError: the plan has no such test or hypothesis.
        InvalidInput: several hypotheses predict it and no note says how it is read; or the words claim a proof.
        ReviewError: what was predicted of a test that was observed before is not in the plan as it was.
    """
    for change in rewritten(diagnosis, earlier):
        raise ReviewError(f"{change.title}: {change.problem}", field=change.field, rule=change.rule)
    earlier = [seen for seen in earlier if seen.test in diagnosis.tests]
    found = _named(diagnosis.tests, test, field="TEST", what="test")
    require_bounded(saw, field="--saw", instead=f'"{_inputs(covers(found))}: ..."')
    note = note or found.note
    if note is not None:
        require_bounded(note, field="--note", instead="which hypotheses the observation cannot tell apart")
    supports: tuple[str, ...] = ()
    contradicted: list[str] = []
    if hypothesis is not None:
        _named(diagnosis.hypotheses, hypothesis, field="--as", what="hypothesis")
        groups = _groups(found, tuple(diagnosis.hypotheses))
        supports = next(group.hypotheses for group in groups if hypothesis in group.hypotheses)
        contradicted = [name for name in diagnosis.hypotheses if name not in supports]
    if len(supports) > 1 and note is None:
        raise InvalidInput(
            f"{', '.join(supports)} all predict that of {test}: it does not tell them apart",
            field="--note",
            rule="how it is read, since several hypotheses predict it",
            remedy='--note "..."',
        )
    gone = {
        name for name in contradicted if _failures(earlier, name) + 1 >= diagnosis.hypotheses[name].stop_after
    }
    return Observed(
        plan=plan,
        test=test,
        saw=saw,
        supports=supports,
        removed=tuple(name for name in contradicted if name in gone),
        failed=tuple(name for name in contradicted if name not in gone),
        next=UNPREDICTED if hypothesis is None else found.branch(hypothesis) or UNPREDICTED,
        covers=covers(found),
        note=note,
        **_as_predicted(diagnosis, found),
        person=person,
        scripted=scripted,
    )


def _named(known: Mapping[str, T], name: str, *, field: str, what: str) -> T:
    if name not in known:
        raise NotFoundError(f"the plan has no {what} {name}", field=field, value=name, rule=", ".join(known))
    return known[name]


def _failures(earlier: Sequence[Observed], hypothesis: str) -> int:
    return sum(hypothesis in (*seen.removed, *seen.failed) for seen in earlier)


def covers(test: DiagnosticTest) -> dict[str, str]:
    """The inputs that a test exercises, as text."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, default=str)
        for key, value in test.covers.items()
    }


def _inputs(covered: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in covered.items())


def outcome(seen: Observed) -> str:
    """What an observation came to, in the only words that there are for it: hypotheses removed, at which inputs."""
    removed = f"hypotheses removed: {', '.join(seen.removed)}" if seen.removed else "no hypothesis removed"
    waiting = f"; failed, and kept until more of it: {', '.join(seen.failed)}" if seen.failed else ""
    return f"{removed} (at {_inputs(seen.covers)}){waiting}"


# --- what was predicted -------------------------------------------------------------------------------------


class _Predicted(TypedDict):
    """What a plan says of a test before it is run, by hypothesis."""

    hypotheses: Mapping[str, str]
    predicts: Mapping[str, str]
    next_by: Mapping[str, str]


def _as_predicted(diagnosis: Diagnosis, test: DiagnosticTest) -> _Predicted:
    known = diagnosis.hypotheses
    predicts = {name: text for name in known if (text := test.prediction(name)) is not None}
    next_by = {name: text for name in known if (text := test.branch(name)) is not None}
    says = {name: known[name].says for name in known}
    return {"hypotheses": says, "predicts": predicts, "next_by": next_by}


def rewritten(diagnosis: Diagnosis, observed: Sequence[Observed]) -> Iterator[Finding]:
    """Where the plan now has something else than what was predicted when a test was first observed.

    Tests and hypotheses that came later are free; what was seen judges none of them.
    """
    first: dict[str, Observed] = {}
    meant: dict[str, str] = {}
    for seen in observed:
        meant = {**seen.hypotheses, **meant}
        if seen.predicts:
            first.setdefault(seen.test, seen)
    yield from _differing("diagnosis.hypotheses", meant, {k: h.says for k, h in diagnosis.hypotheses.items()})
    for name, seen in first.items():
        at = f"diagnosis.tests.{name}"
        if name not in diagnosis.tests:
            yield _predates(at, f"was observed by {seen.person}, and is not in the plan any more", "the test")
            continue
        now = _as_predicted(diagnosis, diagnosis.tests[name])
        yield from _differing(f"{at}.predicts", _of(diagnosis, seen.predicts), now["predicts"])
        yield from _differing(f"{at}.next", _of(diagnosis, seen.next_by), now["next_by"])


def _of(diagnosis: Diagnosis, by_hypothesis: Mapping[str, str]) -> dict[str, str]:
    """Without those of hypotheses that are gone: that is said once, of the hypothesis."""
    return {name: text for name, text in by_hypothesis.items() if name in diagnosis.hypotheses}


def _differing(at: str, was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Finding]:
    for name, text in was.items():
        if name not in now:
            yield _predates(f"{at}.{name}", "was left out after its test was observed", repr(text))
        elif _plain(now[name]) != _plain(text):
            changed = f"changed from {text!r} to {now[name]!r} after its test was observed"
            yield _predates(f"{at}.{name}", changed, repr(text))


def _predates(field: str, problem: str, was: str) -> Finding:
    return Finding(
        item="PLAN-73",
        title=PREDATES,
        field=field,
        problem=problem,
        rule=f"{was}, as it was; another idea is a hypothesis or a test of its own, beside it",
    )


# --- where it stands ----------------------------------------------------------------------------------------


def standing(diagnosis: Diagnosis, observed: Sequence[Observed]) -> tuple[str, ...]:
    """The hypotheses that nothing has removed. That one of them is left alone does not make it true."""
    gone = {name for seen in observed for name in seen.removed}
    return tuple(name for name in diagnosis.hypotheses if name not in gone)


def next_test(diagnosis: Diagnosis, observed: Sequence[Observed]) -> Ranked | None:
    """The best test that tells apart what is left: one that was not run yet, or one more failure of which removes
    a hypothesis. None if the tree has ended.
    """
    left = standing(diagnosis, observed)
    done = {seen.test for seen in observed}
    again = {seen.test for seen in observed if set(seen.failed) & set(left)}
    ranked = [each for each in rank(diagnosis, left) if each.discriminates]
    new = (each for each in ranked if each.name not in done)
    return next(new, None) or next((each for each in ranked if each.name in again), None)


def ended(diagnosis: Diagnosis, observed: Sequence[Observed]) -> Why | None:
    """Why there is no next test; None while there is one. Each is a valid end, without any full run."""
    left = standing(diagnosis, observed)
    if len(left) < 2:
        return "one left" if left else "none left"
    return "nothing tells them apart" if next_test(diagnosis, observed) is None else None
