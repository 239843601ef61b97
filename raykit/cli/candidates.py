"""`raykit candidates register / list / show / dependents`: the weights that can be chosen, and what depends on them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import candidate_lines as tell
from raykit.cli import output
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Root,
    again,
    amount_of,
    at_root,
    open_root,
    person_of,
    words,
)
from raykit.errors import InvalidInput
from raykit.ids import safe_name
from raykit.records import CandidateRole, DependentKind

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read.candidates import CandidateRead

HOUR_MS = 3_600_000

Name = Annotated[str, typer.Argument(metavar="NAME", help="The candidate.")]


# --- register -----------------------------------------------------------------------------------------------


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called from now on.")],
    weights: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT[@UPDATE]", help="The checkpoint; the selected one by default."),
    ],
    role: Annotated[CandidateRole, typer.Option("--role", help="What it is.")],
    surface: Annotated[
        list[str] | None,
        typer.Option(
            "--surface",
            metavar="SPLIT.METRIC=selects|reports",
            help="What it is measured on; as its plan says.",
        ),
    ] = None,
    correct: Annotated[
        bool, typer.Option("--correct", help="What was said of NAME before was wrong: this counts instead.")
    ] = False,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Give a checkpoint a name, so that it can be chosen. It is observed: nobody has chosen it by that.

    The same weights have one name, and one name stands for the same weights for ever.

    Raises:
        InvalidInput: nobody was named; NAME stands for other weights, these have another name, or a surface is none.
        UnsafeNameError: NAME cannot be a name.
        NotFoundError: there is no such checkpoint.
        GateError: a split that only reports was to select.
        CorruptError: the checkpoint does not verify, or a log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.evidence import surface_of
    from raykit.read.bases import resolve_base
    from raykit.read.candidates import read_candidate, registration
    from raykit.store import candidates

    person = person_of(by)
    found = open_root(root)
    _require_free(found, name)
    event = registration(
        found.store,
        resolve_base(found.store, weights),
        name=name,
        role=role,
        surfaces=[surface_of(each) for each in surface or ()],
        person=person,
        corrects=correct,
    )
    new = candidates.register(found.store, event, at=time.time())
    read = read_candidate(found.store, name, now=time.time())
    if as_json:
        output.print_json({"new": new, **read.plain()})
    else:
        output.print_lines(_registered(found, read, new=new, at=at_root(root)))


def _require_free(found: ReadRoot, name: str) -> None:
    if safe_name(name) in found.experiments():
        raise InvalidInput(
            f"{name} is an experiment of {found.store.url}",
            field="NAME",
            value=name,
            rule="a name that nothing else has: plans and people name weights by it",
        )


def _registered(found: ReadRoot, read: CandidateRead, *, new: bool, at: str) -> Iterator[str]:
    from raykit.store.candidates import read_candidate_registry

    candidate = read.candidate
    corrected = (
        " again, and what was said of it is corrected" if new and candidate.said.corrects else again(new)
    )
    yield f"  {candidate.name} is registered{corrected}: {tell.headline(read)}; a name chooses nothing"
    said = candidate.said
    yield from output.facts(
        [
            ("weights", f"{tell.where(candidate)}, sha256 {output.short(said.manifest)}"),
            ("role", said.role),
            ("surfaces", tell.surfaces(said.surfaces)),
            ("QC", read.examination.words),
        ]
    ).splitlines()
    registry = read_candidate_registry(found.store)
    others = [each for each in registry.candidates.values() if each.name != candidate.name]
    if others:
        told = ", ".join(f"{each.name} ({each.said.role}, {each.state})" for each in others)
        yield f"  beside it: {told}"
    if registry.production is not None:
        yield f"  in production: {registry.production.name}"
    yield from tell.way_on(read, at)


# --- look ---------------------------------------------------------------------------------------------------


def list_(root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Every candidate: its role, what people have decided of it, its QC, and which one is in production.

    Raises:
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.read.candidates import examination_of
    from raykit.store.candidates import read_candidate_registry

    store, now = open_root(root).store, time.time()
    registry = read_candidate_registry(store)
    found = [examination_of(store, each.said, now=now) for each in registry.candidates.values()]
    if as_json:
        output.print_json(
            {
                "production": registry.production and registry.production.name,
                "incumbent": registry.incumbent and registry.incumbent.name,
                "candidates": [
                    {
                        **each.said.plain(),
                        "state": each.state,
                        "rejected": each.rejected is not None,
                        "preserved": each.preserved is not None,
                        "qc": examination.plain(),
                    }
                    for each, examination in zip(registry.candidates.values(), found, strict=True)
                ],
            }
        )
    elif not registry.candidates:
        print(f"no candidates in {store.url}")
        output.print_lines(
            [f"  -> raykit candidates register NAME EXPERIMENT@UPDATE --role ROLE{at_root(root)}"]
        )
    else:
        output.print_lines(tell.listing(registry, found, at=at_root(root)))


def show(name: Name, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """One candidate, whole: what it is, what people have decided, how far it is, what depends on it, every act.

    Raises:
        NotFoundError: there is no such candidate.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.read.candidates import read_candidate

    read = read_candidate(open_root(root).store, name, now=time.time())
    if as_json:
        output.print_json(read.plain())
    else:
        output.print_lines(tell.lines(read, at=at_root(root)))


# --- what depends on it -------------------------------------------------------------------------------------


def dependents(
    name: Name,
    add: Annotated[
        DependentKind | None, typer.Option("--add", help="What kind of work depends on it.")
    ] = None,
    what: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="What it is called.")] = None,
    cost: Annotated[
        str | None, typer.Option("--cost", metavar="AMOUNT", help="What making it again would cost.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", min=0, max=1e9, help="How long that would take.")
    ] = None,
    stays: Annotated[bool, typer.Option("--stays", help="It stays valid for other weights.")] = False,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """What depends on a candidate: what would stay valid without it, what would fall, and what that would cost.

    Exports, and experiments that train on from it, are found by themselves; --add records other work.

    Raises:
        InvalidInput: nobody was named, or it is not said what depends.
        NotFoundError: there is no such candidate.
        CorruptError: the registry is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import known, let_depend
    from raykit.read.candidates import inventory_of, redo
    from raykit.records import Dependent
    from raykit.store.candidates import act, read_candidate_registry

    store, new = open_root(root).store, False
    candidate = known(read_candidate_registry(store), name)
    if add is not None:
        event = Dependent(
            candidate=name,
            manifest=candidate.manifest,
            kind=add,
            name=words(what, field="--name", what="what depends on it has to have a name"),
            falls=not stays,
            cost=None if cost is None else amount_of(cost, "--cost"),
            time_ms=None if hours is None else round(hours * HOUR_MS),
            person=person_of(by),
        )
        new = (
            act(store, lambda registry: let_depend(registry, event), by=event.person, at=time.time())
            is not None
        )
    elif what is not None or cost is not None or hours is not None or stays:
        raise InvalidInput(
            "it is not said what kind of work depends on it",
            field="--add",
            rule="a kind, with --name",
            remedy=f'raykit candidates dependents {name} --add target-set --name "..." --by NAME',
        )
    found = inventory_of(store, known(read_candidate_registry(store), name), now=time.time())
    if as_json:
        again_ = redo(found)
        output.print_json(
            {
                "new": new,
                **found.plain(),
                "digest": found.digest,
                "redo": {"cost": again_.cost, "time_ms": again_.time_ms, "unpriced": again_.unpriced},
            }
        )
        return
    if add is not None:
        output.print_lines([f"  {add} {what} depends on {name}{again(new)}"])
    output.print_lines(tell.dependents(found))
    output.print_lines([f"  inventory {output.short(found.digest)}"])
