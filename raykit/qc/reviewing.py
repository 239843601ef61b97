"""What a person may say of receipts, and of requests that came to none: of one run, or of all trials together. Pure.

One act may cover many receipts that passed, after a look at the contact sheet. One that failed, or that had two
answers, is looked at by itself, and can only be reviewed as failed: no word of a person turns it into a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raykit.errors import GateError, InvalidInput, NotFoundError
from raykit.qc.backlog import Backlog, Standing, name_of
from raykit.records import Retried, Reviewed

Verdict = Literal["passed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Who has looked, and what they say."""

    verdict: Verdict
    note: str
    person: str
    scripted: bool


def review(
    found: Backlog, looked: Looked, *, update: int | None, upto: int | None, experiment: str
) -> Reviewed | None:
    """The review of one receipt, or of all that passed and that nobody has looked at; None if that was said before.

    Raises:
        NotFoundError: no checkpoint at that update is examined.
        InvalidInput: both one update and all up to one are named, or several are called failed in one act.
        GateError: it failed and is called passed; the person is the worker that made it; or nothing is there to review.
    """
    if update is not None and upto is not None:
        raise InvalidInput(
            "one checkpoint, or all up to one?", field="--update, --upto", rule="either of them, or neither"
        )
    chosen = [_one(found, update, experiment)] if update is not None else _passed(found, looked, upto)
    _require_other(found, looked.person)
    if not chosen:
        _refuse_the_red(found, experiment)
        return None
    for each in chosen:
        if each.red and looked.verdict == "passed":
            raise GateError(
                f"update {each.update:,} cannot be reviewed as passed: {each.why_not}",
                field="--verdict",
                value="passed",
                rule="a failed check is never treated as passed",
                remedy=f"raykit qc review {name_of(each, experiment)} --update {each.update} --verdict failed "
                "--note ... --by NAME",
            )
    receipts = tuple(dict.fromkeys(each.receipt.digest for each in chosen if each.receipt is not None))
    event = Reviewed(
        receipts=receipts,
        verdict=looked.verdict,
        note=looked.note,
        person=looked.person,
        scripted=looked.scripted,
    )
    said = [each.review.event for each in chosen if each.review is not None]
    same = event.model_copy(update={"receipts": ()})
    if len(said) == len(chosen) and all(one.model_copy(update={"receipts": ()}) == same for one in said):
        return None
    return event


def _one(found: Backlog, update: int, experiment: str) -> Standing:
    standing = found.at(update)
    if standing is None:
        raise NotFoundError(
            f"no checkpoint at update {update:,} of {experiment} is required",
            field="--update",
            value=update,
            rule="one of " + ", ".join(f"{each.update:,}" for each in found.standings[:12]),
            remedy=f"raykit qc status {experiment}",
        )
    if standing.receipt is None:
        raise GateError(
            f"update {update:,} has no receipt to review: it is {standing.status}",
            field="--update",
            value=update,
            remedy=f"raykit qc run {name_of(standing, experiment)}",
        )
    return standing


def _passed(found: Backlog, looked: Looked, upto: int | None) -> list[Standing]:
    if looked.verdict == "failed":
        raise InvalidInput(
            "what is reviewed as failed is named one by one",
            field="--update",
            rule="--update N",
        )
    return [
        each
        for each in found.standings
        if each.receipt is not None and not each.red and _is_new(each, looked)
        if upto is None or each.update <= upto
    ]


def _is_new(each: Standing, looked: Looked) -> bool:
    """Nobody has reviewed it yet, or only a script, and now a person does."""
    return each.review is None or (each.review.event.scripted and not looked.scripted)


def _refuse_the_red(found: Backlog, experiment: str) -> None:
    """What is left to review failed: that is never done in one act with others."""
    red = [each for each in found.unreviewed if each.red]
    if red:
        first = red[0]
        raise GateError(
            f"{len(red)} of {experiment} failed, and each is looked at by itself: update "
            + ", ".join(_where(each) for each in red[:12]),
            field="--update",
            rule=str(first.why_not),
            remedy=f"raykit qc review {name_of(first, experiment)} --update {first.update} --verdict failed "
            "--note ... --by NAME",
        )


def _where(each: Standing) -> str:
    run = each.request.run
    return f"{each.update:,}" if run == "main" else f"{each.update:,} of {run}"


def _require_other(found: Backlog, person: str) -> None:
    """A reviewer is somebody other than the workers, however they are called."""
    workers = {claim.worker for each in found.standings for claim in each.said.claims}
    name = next((worker for worker in sorted(workers) if worker.casefold() in person.casefold()), None)
    if name is not None:
        raise GateError(
            f"{name} is a worker that examined these checkpoints",
            field="--by",
            value=person,
            rule="a named person other than the worker that examined it",
        )


def retry(
    found: Backlog, *, update: int | None, reason: str, person: str, experiment: str
) -> tuple[Retried, ...]:
    """Let parked requests be tried again; nothing for those that have a receipt or are tried anyway.

    Raises:
        NotFoundError: no checkpoint at that update is required.
    """
    chosen: Sequence[Standing] = found.standings
    if update is not None:
        standing = found.at(update)
        if standing is None:
            raise NotFoundError(
                f"no checkpoint at update {update:,} of {experiment} is required",
                field="--update",
                value=update,
                remedy=f"raykit qc status {experiment}",
            )
        chosen = [standing]
    parked = {each.request.id: each for each in chosen if each.status == "parked"}
    return tuple(
        Retried(
            request=id,
            after=max(failure.n for failure in each.said.failures),
            reason=reason,
            person=person,
        )
        for id, each in parked.items()
    )
