"""`raykit candidates recommend / approve / reject / preserve / switch`: what people decide of candidates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from raykit.cli import candidate_lines as tell
from raykit.cli import output
from raykit.cli.candidates import Name
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    How,
    Json,
    Reason,
    Root,
    Scripted,
    again,
    at_root,
    is_scripted,
    open_root,
    person_of,
    words,
)
from raykit.errors import InvalidInput

if TYPE_CHECKING:
    from raykit.read.candidates import CandidateRead, Examination
    from raykit.records import CandidateEvent, Inventory
    from raykit.store.base import ObjectStore

Unexamined = Annotated[
    str | None,
    typer.Option(
        "--unexamined", metavar="TEXT", help="Why a base that nobody here can examine is used all the same."
    ),
]


# --- recommend ----------------------------------------------------------------------------------------------


def recommend(
    name: Name,
    surface: Annotated[
        str,
        typer.Option(
            "--surface", metavar="SPLIT.METRIC", help="What it is better on, such as development.ratio."
        ),
    ],
    value: Annotated[
        float | None, typer.Option("--value", help="What it scores; from the store by default.")
    ] = None,
    incumbent_value: Annotated[
        float | None,
        typer.Option("--incumbent-value", help="What the incumbent scores; from the store by default."),
    ] = None,
    better: Annotated[
        Literal["less", "more"] | None, typer.Option("--better", help="Which is better; as the plan selects.")
    ] = None,
    how: How = None,
    reason: Reason = None,
    unexamined: Unexamined = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Say why a candidate should be chosen, with its evidence. That does not choose it.

    Against an incumbent only a difference counts that the plan has called worthwhile; anything less leaves the
    candidate observed. A metric of a split that reports supports a recommendation only where the plan allows it. What
    the store has measured counts: --value is for what it has not.

    Raises:
        InvalidInput: nobody was named, no reason was given, a value is not finite, or it is examined and --unexamined
            says that it is not.
        NotFoundError: there is no such candidate.
        GateError: its QC, its role, its surface or the difference does not carry a recommendation, or the store has
            another value.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import known, let_recommend, require_recommendable
    from raykit.read.candidates import Given, evidence_for, examination_of, require_examined, supports
    from raykit.records import Recommended
    from raykit.store.candidates import act, read_candidate_registry

    person = person_of(by)
    why = words(reason, field="--reason", what="a recommendation needs a reason")
    given = Given(
        value=_finite(value, "--value"),
        incumbent=_finite(incumbent_value, "--incumbent-value"),
        better=better,
        how=None if how is None else words(how, field="--how", what="how the values were measured"),
    )
    store = open_root(root).store
    registry = read_candidate_registry(store)
    candidate = known(registry, name)
    allowed = supports(store, candidate.said)
    require_recommendable(candidate, surface, supports=allowed)
    found = examination_of(store, candidate.said, now=time.time())
    receipts = require_examined(found, candidate.said, None, _said(unexamined))
    _require_unexamined(found, unexamined)
    evidence = evidence_for(store, candidate, registry.incumbent, surface, given, person=person)
    event = Recommended(
        candidate=name,
        evidence=(evidence,),
        receipts=receipts,
        unexamined=None if found.possible else _said(unexamined),
        reason=why,
        person=person,
        scripted=is_scripted(scripted),
    )
    new = act(store, lambda now: let_recommend(now, event, supports=allowed), by=person, at=time.time())
    _told(
        store,
        name,
        new,
        f"{name} is recommended{again(new is not None)}, not approved",
        as_json=as_json,
        root=root,
    )


def _finite(value: float | None, field: str) -> float | None:
    if value is not None and not math.isfinite(value):
        raise InvalidInput(f"{value} is no score", field=field, rule="a finite number")
    return value


def _said(unexamined: str | None) -> str | None:
    if unexamined is None:
        return None
    return words(unexamined, field="--unexamined", what="why it may be used without")


def _require_unexamined(found: Examination, unexamined: str | None) -> None:
    if unexamined is not None and found.possible:
        raise InvalidInput(
            f"{found.what} is examined: {found.words}",
            field="--unexamined",
            rule="only for a base that nobody here can examine",
            remedy="leave --unexamined out",
        )


# --- approve ------------------------------------------------------------------------------------------------


def approve(
    name: Name,
    use: Annotated[
        Literal["generation", "export", "production"],
        typer.Option("--use", help="For what: production covers export, and export generation."),
    ],
    reason: Reason = None,
    unexamined: Unexamined = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Choose this very candidate for a use. No approval of a plan, of a rule or of another candidate does that.

    It does not put it into production (raykit candidates switch), and it decides nothing about any other candidate. A
    script's approval is labelled, and is none for production; nor may a script let a diagnostic or search checkpoint
    out: these are exported to be looked at, and a person lets them.

    Raises:
        InvalidInput: nobody was named, no reason was given, or it is examined and --unexamined says that it is not.
        NotFoundError: there is no such candidate.
        GateError: its role, its QC, a rejection or a tie with the incumbent stands in the way, or a script asks.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import known, let_approve, require_role
    from raykit.read.candidates import examination_of, require_examined
    from raykit.records import CandidateApproved
    from raykit.store.candidates import act, read_candidate_registry

    person = person_of(by)
    why = words(reason, field="--reason", what="an approval needs a reason")
    store = open_root(root).store
    candidate = known(read_candidate_registry(store), name)
    require_role(candidate, use)
    found = examination_of(store, candidate.said, now=time.time())
    receipts = require_examined(found, candidate.said, use, _said(unexamined))
    _require_unexamined(found, unexamined)
    event = CandidateApproved(
        candidate=name,
        manifest=candidate.manifest,
        use=use,
        receipts=receipts,
        unexamined=None if found.possible else _said(unexamined),
        reason=why,
        person=person,
        scripted=is_scripted(scripted),
    )
    new = act(store, lambda now: let_approve(now, event), by=person, at=time.time())
    label = " (scripted: never enough for production)" if event.scripted else ""
    _told(
        store,
        name,
        new,
        f"{name} is approved for {use}{again(new is not None)} by {person}{label}",
        as_json=as_json,
        root=root,
    )


# --- reject, preserve ---------------------------------------------------------------------------------------


def reject(
    name: Name,
    reason: Reason = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Decide against a candidate. Its recommendations and approvals end; its files stay, and so does all that was said.

    That a fresh refit would be more usual, cleaner or easier to describe is no reason. The incumbent is rejected only
    if no decision may rest on it any more.

    Raises:
        InvalidInput: nobody was named, or no reason was given.
        NotFoundError: there is no such candidate.
        GateError: the reason is none, or it is the incumbent and nothing is wrong with it.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import let_reject
    from raykit.read.candidates import read_candidate
    from raykit.records import CandidateRejected
    from raykit.store.candidates import act

    person = person_of(by)
    why = words(reason, field="--reason", what="a rejection needs a reason")
    store = open_root(root).store
    read = read_candidate(store, name, now=time.time())
    unusable = read.facts.broken or read.examination.why_not
    event = CandidateRejected(candidate=name, reason=why, person=person, scripted=is_scripted(scripted))
    new = act(store, lambda now: let_reject(now, event, unusable=unusable), by=person, at=time.time())
    said = f"{name} is rejected{again(new is not None)}; nothing of it is deleted"
    _told(store, name, new, said, as_json=as_json, root=root)


def preserve(
    name: Name,
    reason: Reason = None,
    let_go: Annotated[bool, typer.Option("--let-go", help="It need not be kept for good any more.")] = False,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Keep a candidate for good, whatever else is chosen; or, with --let-go, no longer.

    Raises:
        InvalidInput: nobody was named, or no reason was given.
        NotFoundError: there is no such candidate.
        GateError: it is to go because others would be neater.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import let_preserve
    from raykit.records import Preserved
    from raykit.store.candidates import act

    person = person_of(by)
    why = words(reason, field="--reason", what="whoever finds it will ask why")
    store = open_root(root).store
    event = Preserved(candidate=name, keep=not let_go, reason=why, person=person)
    new = act(store, lambda now: let_preserve(now, event), by=person, at=time.time())
    said = "need not be kept for good" if let_go else "is kept for good"
    _told(store, name, new, f"{name} {said}{again(new is not None)}", as_json=as_json, root=root)


# --- switch -------------------------------------------------------------------------------------------------


def switch(
    name: Name,
    seen: Annotated[
        str | None,
        typer.Option("--seen", metavar="DIGEST", help="The inventory of what falls, as it was shown to you."),
    ] = None,
    reason: Reason = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Put an approved candidate into production. The one before keeps its state and all its files.

    What depends on the one before is shown first: what stays valid, what falls, what making that again costs. If
    anything falls, say with --seen that you have seen it.

    Raises:
        InvalidInput: nobody was named, or no reason was given.
        NotFoundError: there is no such candidate.
        GateError: it is not approved for production by a person, not better by what is worthwhile, not examined any
            more, or nobody has seen what falls.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import known, let_switch
    from raykit.read.candidates import examination_of, inventory_of, require_examined
    from raykit.records import Switched
    from raykit.store.candidates import act, read_candidate_registry

    person = person_of(by)
    why = words(reason, field="--reason", what="a switch needs a reason")
    store = open_root(root).store
    registry = read_candidate_registry(store)
    candidate, incumbent = known(registry, name), registry.incumbent
    replaced = incumbent if incumbent is not None and incumbent.name != name else None
    inventory = None if replaced is None else inventory_of(store, replaced, now=time.time())
    event = Switched(
        to=name,
        from_=None if replaced is None else replaced.name,
        inventory=inventory,
        reason=why,
        person=person,
        scripted=is_scripted(scripted),
    )
    if not as_json:
        output.print_lines(_inventory_lines(store, inventory))
    found = examination_of(store, candidate.said, now=time.time())
    if registry.production is None or registry.production.name != name:
        require_examined(found, candidate.said, "production", None)
    new = act(store, lambda now: let_switch(now, event, seen=seen), by=person, at=time.time())
    before = "" if replaced is None else f"; {replaced.name} stays {replaced.state}, and all its files stay"
    _told(
        store,
        name,
        new,
        f"{name} is in production{again(new is not None)}{before}",
        as_json=as_json,
        root=root,
    )


def _inventory_lines(store: ObjectStore, inventory: Inventory | None) -> Iterator[str]:
    from raykit.read.candidates import read_candidate

    if inventory is None:
        yield "  nothing is in its place: no work depends on what was there before"
        return
    yield f"  what depends on {inventory.candidate} (inventory {output.short(inventory.digest)}):"
    yield from tell.dependents(inventory)
    replaced = read_candidate(store, inventory.candidate, now=time.time())
    yield f"  {inventory.candidate} itself stays: {tell.replacement(replaced)}"


# --- what has been said -------------------------------------------------------------------------------------


def _told(
    store: ObjectStore, name: str, new: CandidateEvent | None, said: str, *, as_json: bool, root: str
) -> None:
    """Say what an act led to, and what comes next."""
    from raykit.read.candidates import read_candidate

    read = read_candidate(store, name, now=time.time())
    if as_json:
        output.print_json({"new": new is not None, "event": new and new.plain(), **read.plain()})
        return
    output.print_lines([f"  {said}", *_after(read, at_root(root))])


def _after(read: CandidateRead, at: str) -> Iterator[str]:
    pairs = [
        ("state", tell.headline(read)),
        ("rests on", tell.rests_on(read)),
        ("QC", read.examination.words),
        ("invested", tell.replacement(read)),
    ]
    yield from output.facts(pairs).splitlines()
    yield from tell.way_on(read, at)
