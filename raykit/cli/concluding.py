"""`raykit conclude`: what a person concludes from an experiment, and what its runs can carry."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from raykit.cli import output
from raykit.cli.lessons import known_line, known_record
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Root,
    Scripted,
    again,
    holds_store,
    is_scripted,
    open_root,
    person_of,
    store_line,
    words,
)
from raykit.cli.subject import Subject, Target, subject_of
from raykit.errors import InvalidInput, NotFoundError, ReviewError

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.records import Concluded
    from raykit.store.learned import Known, Told

Outcome = Literal["better", "worse", "equivalent", "unresolved", "invalid", "no-full-run"]

QUALITY: tuple[Outcome, ...] = ("better", "worse", "equivalent")
"""Outcomes that compare the final quality of a whole run."""
WON: tuple[Outcome, ...] = ("better", "equivalent")
"""Those of them that would end the question in favour of what was tried."""


def conclude(
    target: Target,
    outcome: Annotated[
        Outcome | None,
        typer.Option("--outcome", metavar="OUTCOME", help=" | ".join(get_args(Outcome)) + "."),
    ] = None,
    says: Annotated[
        str | None, typer.Option("--says", metavar="TEXT", help="What follows for the decision.")
    ] = None,
    effect: Annotated[
        str | None, typer.Option("--effect", metavar="TEXT", help="The effect, with its uncertainty.")
    ] = None,
    hypothesis: Annotated[
        str | None, typer.Option("--hypothesis", metavar="TEXT", help="The idea that was tried.")
    ] = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """What a person concludes from an experiment; kept so that nobody runs the same idea again unawares.

    That it needs no full run is a conclusion like any other, and money that is left over is no error.

    Raises:
        InvalidInput: the outcome, the words or the person are missing, or claim a proof.
        NotFoundError: there is no such experiment.
        ReviewError: nothing that was run can carry this outcome.
        GateError: its QC is not complete: something is open, or nobody has reviewed it.
        PlanError: the plan file is wrong.
        CorruptError: what is stored is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.records import Concluded
    from raykit.store.learned import learn, selection_history

    if outcome is None:
        raise InvalidInput("how did it end?", field="--outcome", rule=" | ".join(get_args(Outcome)))
    person = person_of(by)
    found = open_root(root)
    opened = not holds_store(found)
    subject = subject_of(found.store, target)
    case = _Case(subject, _views(found, subject))
    text, figures = _text(says), _effect(effect)
    _require_carried(case, outcome, (text, figures or ""))
    if outcome in QUALITY:
        _require_examined(found, case, outcome)
    _require_effect(outcome, figures)
    event = Concluded(
        outcome=outcome,
        says=text,
        hypothesis=_idea(subject, hypothesis),
        effect=figures,
        decision=subject.decision,
        contract=subject.contract,
        update=case.update,
        person=person,
        scripted=is_scripted(scripted),
    )
    name = subject.name
    history = selection_history(found.store, subject.decision, own=name)
    told = learn(found.store, name, lambda known: event, opens=subject.file, person=person, at=time.time())
    earlier = [each for each in history if each.event != told.event]
    if as_json:
        output.print_json({**_record(case, told, earlier), "new_store": opened})
    else:
        output.print_lines(_lines(case, told, earlier))
        output.print_lines(store_line(found, opened))


@dataclass(frozen=True, slots=True)
class _Case:
    """An experiment with the runs that it has had, if any."""

    subject: Subject
    views: Sequence[RunView]

    @property
    def completed(self) -> bool:
        return any(view.state == "completed" for view in self.views)

    @property
    def update(self) -> int:
        """Updates that were trained."""
        return max((view.update for view in self.views), default=0)

    @property
    def progress(self) -> str:
        of = next((f" of {output.count(view.updates)}" for view in self.views if view.updates), "")
        return f"{output.count(self.update)}{of} updates"

    @property
    def safeguards(self) -> dict[str, str]:
        """Two separate ones: neither stands in for the other."""
        subject = self.subject
        roles = () if subject.lock is None else tuple(subject.lock.rows)
        kept = [role for role in roles if role in ("report_only", "benchmark", "sealed")]
        unread = f"{', '.join(kept)} was not read" if kept else "the plan keeps no split untouched"
        return {
            "long_run": "done" if self.completed and subject.stage == "confirmation" else "not done",
            "holdout": f"not done: {unread}",
        }


def _text(says: str | None) -> str:
    from raykit.review.claims import require_bounded

    text = words(says, field="--says", what="a conclusion says what follows from it")
    return require_bounded(text, field="--says", instead="hypotheses removed, or an effect with its range")


def _effect(text: str | None) -> str | None:
    if text is None:
        return None
    said = words(text, field="--effect", what="an empty effect")
    if not re.search("[0-9]", said):
        raise InvalidInput(
            f"{said!r} holds no figure",
            field="--effect",
            rule="the effect in the metric's units, with its uncertainty",
            remedy='--effect "-0.004 +/- 0.002"',
        )
    return said


def _require_effect(outcome: Outcome, effect: str | None) -> None:
    if outcome in QUALITY and effect is None:
        raise InvalidInput(
            f"{outcome} by how much?",
            field="--effect",
            rule=f"the effect in the metric's units, with its uncertainty: {', '.join(QUALITY)} need it",
            remedy='--effect "-0.004 +/- 0.002"',
        )


def _idea(subject: Subject, hypothesis: str | None) -> str | None:
    """The idea in words: a hypothesis of the diagnosis by its name, else what was typed, else that of the search."""
    if hypothesis is None:
        return subject.hypothesis
    said = words(hypothesis, field="--hypothesis", what="an empty hypothesis")
    known = {} if subject.diagnosis is None else subject.diagnosis.hypotheses
    return known[said].says if said in known else said


def _views(found: ReadRoot, subject: Subject) -> list[RunView]:
    """The runs of exactly this setting; an experiment may have none."""
    try:
        views = found.runs(subject.name)
    except NotFoundError:
        return []
    return [view for view in views if view.lock is None or view.lock.contract == subject.contract]


def _require_carried(case: _Case, outcome: Outcome, texts: Sequence[str]) -> None:
    """Refuse a conclusion that says more than what was run can carry."""
    from raykit.review.claims import confirmed

    subject, completed = case.subject, case.completed
    if outcome in QUALITY and not completed:
        raise ReviewError(
            f"no run of {subject.name} has completed ({case.progress}): one that ended early compares no final "
            "quality",
            field="--outcome",
            value=outcome,
            rule="unresolved, invalid or no-full-run until a run has completed",
            remedy=f'raykit conclude {subject.typed} --outcome invalid --says "..." --by NAME',
        )
    if outcome == "no-full-run" and completed and subject.stage == "confirmation":
        raise InvalidInput(
            f"a full run of {subject.name} has completed",
            field="--outcome",
            value=outcome,
            rule="better, worse, equivalent, unresolved or invalid",
        )
    claim = next((found for text in texts if (found := confirmed(text))), None)
    if subject.stage == "screening" and (outcome in WON or claim is not None):
        raise ReviewError(
            f"{subject.name} is a screening: it rejects and ranks ideas, and {claim or outcome!r} takes a run at "
            "the target protocol with matched controls",
            field="--outcome" if claim is None else "--says",
            value=outcome if claim is None else claim,
            rule="worse, unresolved, invalid or no-full-run; its effect may be said with --effect",
            remedy=f'raykit conclude {subject.typed} --outcome unresolved --effect "..." --says "..." --by NAME',
        )


def _require_examined(found: ReadRoot, case: _Case, outcome: Outcome) -> None:
    """A conclusion about quality needs every required checkpoint examined and reviewed; a good one, a usable choice."""
    from raykit.qc.backlog import require_complete, require_usable
    from raykit.read.qc import read_qc

    for view in case.views:
        read = read_qc(found.store, view.experiment, view.run, now=found.now())
        if read is None:
            continue
        require_complete(read.backlog, view.experiment)
        selected = found.selected(view)
        if selected is not None and outcome in WON:
            standing = read.backlog.of(selected.sha256)
            what = f"update {selected.update:,}, which the plan selects"
            require_usable(standing, what, experiment=view.experiment)


def _record(case: _Case, told: Told[Concluded], earlier: Sequence[Known[Any]]) -> dict[str, Any]:
    return {
        **told.event.plain(),
        "experiment": case.subject.name,
        "new": told.new,
        "stage": case.subject.stage,
        "safeguards": case.safeguards,
        "selection": [known_record(each) for each in earlier],
    }


_STAGES = {
    "screening": "screening: it removes and ranks ideas, and confirms none",
    "confirmation": "at the target protocol",
}


def _lines(case: _Case, told: Told[Concluded], earlier: Sequence[Known[Any]]) -> Iterator[str]:
    from raykit.store.learned import about

    said = told.event
    script = " (scripted)" if said.scripted else ""
    yield f"  concluded{again(told.new)} by {said.person}{script}: {said.outcome}"
    yield f"  says     {said.says}"
    if said.effect is not None:
        yield f"  effect   {said.effect}"
    if said.hypothesis is not None:
        yield f"  tried    {said.hypothesis}"
    yield f"  setting  contract {output.short(said.contract)}, at update {output.count(said.update)}"
    yield f"  stage    {_STAGES[case.subject.stage]}"
    money = next((view.money for view in case.views if view.money is not None), None)
    if money is not None and money.billed:
        spent = output.money_of(money.actual, money.ceiling, money.unit)
        yield f"  money    {spent} used; what was not needed is no error"
    if said.outcome in QUALITY:
        yield f"  long run {case.safeguards['long_run']}"
        yield f"  holdout  {case.safeguards['holdout']}"
    yield f"  chosen   {'after:' if earlier else 'with no selection on record'}"
    for each in earlier:
        gone = each.experiment == case.subject.name and about(each.event) == about(said)
        yield f"    {known_line(each)}" + ("; superseded by this" if gone else "")
