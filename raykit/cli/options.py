"""The options that commands share, and what makes them safe to keep for ever."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.errors import InvalidInput, NotFoundError, PlanError, RaykitError
from raykit.ids import safe_name

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot

DEFAULT_ROOT = "./store"
LAUNCH = "RAYKIT_LAUNCH"
"""Set by the entry of a Ray job for the command that it runs: what the launch is called."""
TYPED = "RAYKIT_TYPED"
"""Set by the same where a person typed the command that sent the job."""
MAX_WORDS = 2000

Root = Annotated[
    str, typer.Option("--root", envvar="RAYKIT_ROOT", help="The store: a path, or s3://bucket/prefix.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors on stderr too; nothing else.")]
By = Annotated[
    str | None,
    typer.Option("--by", "--as", metavar="NAME", envvar="RAYKIT_PERSON", help="The person who says so."),
]
Scripted = Annotated[
    bool, typer.Option("--scripted", help="A script says so; without a terminal that is assumed.")
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept for ever.")]
How = Annotated[str | None, typer.Option("--how", metavar="TEXT", help="How that is known; kept for ever.")]


Trial = Annotated[
    int | None, typer.Option("--trial", min=1, metavar="N", help="Of a search: only this row of its table.")
]


def run_named(found: ReadRoot, name: str, trial: int | None) -> str:
    """The run that was typed: that of a row of its table where `trial` says one.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: there is no such search.
        InvalidInput: it has no such row, or a run was typed already.
        CorruptError: a log, a record or the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    if trial is None:
        return name
    experiment, slash, _ = name.partition("/")
    if slash:
        raise InvalidInput(
            f"{name} is one run already", field="--trial", value=trial, rule=f"--trial with {experiment}"
        )
    return f"{name}/{found.search(name).row(trial).run}"


def at_root(root: str) -> str:
    """` --root ROOT` where a command that is printed needs it; nothing where it is what is meant anyway."""
    return "" if root in (DEFAULT_ROOT, os.environ.get("RAYKIT_ROOT")) else f" --root {shlex.quote(root)}"


_PLAN = re.compile(r"(?<=raykit )((?:[a-z]+ ){1,2})PLAN\b")


@contextmanager
def at_plan(plan: Path, root: str | None = None, *, makes_sets: bool = False) -> Iterator[None]:
    """Commands in a refusal name this plan's file, where they would only say PLAN.

    With `root`, a name that was typed where a file is meant is told how to go on with the experiment of that name; a
    command that `makes_sets` needs the file itself.
    """
    try:
        yield
    except RaykitError as error:
        name_plan(error, plan)
        if root is not None and isinstance(error, PlanError) and error.field == "PLAN" and not plan.exists():
            _point_at_experiment(error, plan, root, makes_sets=makes_sets)
        raise


def _point_at_experiment(error: PlanError, plan: Path, root: str, *, makes_sets: bool) -> None:
    """Say how an experiment goes on, if it is one that was typed and not a file."""
    name, found = plan.parts[0] if plan.parts else "", open_root(root)
    if name not in found.experiments():
        return
    if makes_sets:
        error.rule = (
            f'the plan file with name = "{name}": {name} is an experiment, and its file makes its sets'
        )
        error.remedy = (
            f"raykit generate PLAN{at_root(root)}   or   raykit generate status {name}{at_root(root)}"
        )
        return
    search = found.search(name) if found.has_search(name) else None
    resume = f"raykit resume {name}" if search is None else search.resume
    looks, at = "show" if search is None else "search status", at_root(root)
    error.rule = f"a plan file; {name} is an experiment, and goes on by its name"
    error.remedy = f"{resume}{at}   or   raykit {looks} {name}{at}"


def name_plan(error: RaykitError, plan: Path) -> None:
    """Put this plan's file into the commands of a refusal."""
    for each in (error, *getattr(error, "findings", ())):
        if each.remedy is not None:
            each.remedy = _PLAN.sub(lambda found: found.group(1) + shlex.quote(str(plan)), each.remedy)


def open_root(root: str) -> ReadRoot:
    """The store that `--root` names, for reading.

    Raises:
        UnusableRootError: it is a file, or neither a path nor an S3 URL.
    """
    import raykit

    return raykit.open(root)


def holds_store(found: ReadRoot) -> bool:
    """Whether anything of raykit's is at the root.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store import layout

    candidates = found.store.list(layout.candidates_log())
    return bool(found.experiments()) or any(layout.known(item.key) is not None for item in candidates)


def require_store(found: ReadRoot) -> None:
    """Refuse a root that holds no store: that nothing is found there says nothing.

    Raises:
        NotFoundError: there is none.
        StoreUnavailableError: the store did not answer.
    """
    if not holds_store(found):
        raise NotFoundError(
            f"there is no experiment in {found.store.url}",
            field="ROOT",
            rule="a store: the folder or prefix that holds experiments/",
        )


def store_line(found: ReadRoot, opened: bool) -> Iterator[str]:
    """Say that an act has begun a store where there was none: a root that was mistyped looks like that."""
    if opened:
        yield f"  a new store: {found.store.url}"


def again(new: bool) -> str:
    """` already`, where an act that was said before changed nothing."""
    return "" if new else " already"


def require_whole(target: str, act: str, *, field: str) -> None:
    """Refuse an act on one run, such as a trial, or on one set: people act on its whole experiment.

    Raises:
        InvalidInput: it is a run or a set.
        UnsafeNameError: its experiment cannot be one.
    """
    experiment, slash, _ = target.removeprefix("experiment:").partition("/")
    if slash and experiment and safe_name(experiment):
        raise InvalidInput(
            f"{target} is a run or a set of {experiment}, and an act is about all of it",
            field=field,
            value=target,
            rule="the name of the experiment; a trial goes on with its search, a set by raykit generate PLAN",
            remedy=f"raykit {act} {shlex.quote(experiment)}",
        )


UNNAMED = "somebody"
"""Who has paused without giving a name. A login name says nothing: people act under their own."""


def person_of(by: str | None, *, needed: bool = True) -> str:
    """The person who acts; where none is `needed`, `somebody`.

    Raises:
        InvalidInput: nobody was named, or a name that cannot be shown as it is.
    """
    if by is None and not needed:
        return UNNAMED
    return words(by, field="--by", what="a person has to say so", remedy="--by NAME, or RAYKIT_PERSON=NAME")


def words(text: str | None, *, field: str, what: str, remedy: str | None = None) -> str:
    """What a person wrote, if it is worth keeping.

    Raises:
        InvalidInput: nothing, too much, or what a terminal would obey instead of showing it.
    """
    if text is None or not text.strip():
        raise InvalidInput(what, field=field, rule="a few words", remedy=remedy or f'{field} "..."')
    if not text.strip().isprintable():
        raise InvalidInput(
            f"{field} holds control characters",
            field=field,
            value=text,
            rule="one line of text that can be shown as it is: it is kept for ever, and read in terminals",
        )
    if len(text) > MAX_WORDS:
        raise InvalidInput(
            f"{field} is {len(text):,} characters long", field=field, rule=f"at most {MAX_WORDS:,}"
        )
    return text.strip()


def is_scripted(scripted: bool) -> bool:
    """Nobody sits at a terminal, or a script says that it is one. Of a job, the terminal is where it was sent from."""
    return scripted or not (sys.stdin.isatty() or TYPED in os.environ)


def amount_of(text: str, field: str) -> int:
    """The micro-units of an amount that was typed.

    Raises:
        InvalidInput: it is none.
    """
    from raykit.budget.amounts import micros

    return micros(text, field=field)
