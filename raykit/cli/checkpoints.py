"""`raykit checkpoints list / verify / pin / export`: the checkpoints of a run, kept, and taken out of the store."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output, runlook
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Reason,
    Root,
    Trial,
    again,
    at_root,
    open_root,
    person_of,
    run_named,
    words,
)
from raykit.cli.progress import bar
from raykit.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    from raykit.plan import LockedBase
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.store.base import ObjectStore
    from raykit.work.export import Weights

Run = Annotated[str, typer.Argument(metavar="RUN", help="experiment, or experiment/run.")]


# --- list, verify -------------------------------------------------------------------------------------------


def list_(run: Run, trial: Trial = None, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """Every checkpoint, its score on the development split, which one the plan selects so far, and who keeps it.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: the experiment has several runs.
        CorruptError: the log, the registry or the development history cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    found = open_root(root)
    view = found.run(run_named(found, run, trial))
    selected, scored = found.selected(view), scores(found, view)
    kept = _kept(found.store, view.experiment)
    if as_json:
        output.print_json(
            [
                {
                    **item.commit.plain(),
                    "at": item.at,
                    "counts": item.counts,
                    "selected": item.commit == selected,
                    "score": scored.get(item.commit.update),
                    "kept": kept.get(item.commit.sha256, []),
                }
                for item in view.commits
            ]
        )
    elif not view.commits:
        print(f"{view.id} has no checkpoints yet")
    else:
        print(runlook.commits_table(view, selected, scored, kept))


def _kept(store: ObjectStore, experiment: str) -> dict[str, list[str]]:
    """By the digest of a manifest: who keeps it, and under which name people know it."""
    from raykit.store.candidates import read_candidate_registry
    from raykit.store.people import read_acts

    kept: dict[str, list[str]] = defaultdict(list)
    for manifest, pin in read_acts(store, experiment).pinned.items():
        kept[manifest].append(f"pinned by {pin.person}")
    for candidate in read_candidate_registry(store).candidates.values():
        kept[candidate.manifest].append(f"candidate {candidate.name}")
    return dict(kept)


def scores(found: ReadRoot, view: RunView) -> dict[int, float | None]:
    """What the plan selects by, at each update where it was measured; nothing where the history is damaged."""
    from raykit.read.seen import selection

    chosen = selection(view.lock)
    if chosen is None:
        return {}
    try:
        return {row.update: row.metrics.get(chosen[1]) for row in found.history(view, "development").rows()}
    except CorruptError:
        return {}


def verify_(
    run: Run,
    update: Annotated[int | None, typer.Option("--update", min=0, help="Only those of this update.")] = None,
    trial: Trial = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Read checkpoints whole and compare every digest; exit code 5 if one does not hold.

    Raises:
        NotFoundError: there is no such run, or no checkpoint of that update.
        InvalidInput: the experiment has several runs.
        CorruptError: the log cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.commit import verify

    found = open_root(root)
    view = found.run(run_named(found, run, trial))
    commits = [item.commit for item in view.commits if update is None or item.commit.update == update]
    if not commits:
        what = "checkpoints" if update is None else f"checkpoint of update {update}"
        raise NotFoundError(f"{view.id} has no {what}", field="--update", value=update)
    wrong: dict[int, str] = {}
    with bar("verify", quiet=as_json) as tell:
        for n, commit in enumerate(commits):
            try:
                verify(found.store, commit)
            except (CorruptError, NotFoundError) as error:
                wrong[n] = error.message
            tell(n + 1, len(commits))
    if as_json:
        output.print_json(
            [{**c.plain(), "ok": n not in wrong, "found": wrong.get(n)} for n, c in enumerate(commits)]
        )
    else:
        rows = [
            (output.count(c.update), str(c.attempt), output.size(c.size_bytes), wrong.get(n, "verified"))
            for n, c in enumerate(commits)
        ]
        print(output.table(("UPDATE", "ATTEMPT", "SIZE", "FOUND"), rows, right=("UPDATE", "SIZE")))
    if wrong:
        raise typer.Exit(CorruptError.exit_code)


# --- pin ----------------------------------------------------------------------------------------------------


def pin(
    checkpoint: Annotated[str, typer.Argument(metavar="EXPERIMENT@UPDATE", help="The checkpoint.")],
    reason: Reason = None,
    let_go: Annotated[bool, typer.Option("--let-go", help="It need not be kept for good any more.")] = False,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Keep one checkpoint for good, whatever retention says; or, with --let-go, no longer. It is not chosen by that.

    Raises:
        InvalidInput: nobody was named, no reason was given, or it is none of a run.
        NotFoundError: there is no such checkpoint.
        GateError: it is to go because others would be neater.
        CorruptError: the checkpoint does not verify, or a log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.candidates.rules import require_reason
    from raykit.read.bases import resolve_base
    from raykit.read.candidates import run_of_key
    from raykit.records import Pinned
    from raykit.store import pins

    person = person_of(by)
    why = words(reason, field="--reason", what="whoever finds it will ask why")
    found = open_root(root)
    locked = resolve_base(found.store, checkpoint, read_data=False)
    _require_of_run(locked)
    if let_go:
        require_reason(why, f"{checkpoint} is not let go")
    event = Pinned(
        run=run_of_key(locked.key),
        update=locked.update,
        manifest=locked.manifest,
        keep=not let_go,
        reason=why,
        person=person,
    )
    new = pins.pin(found.store, locked.experiment, event, at=time.time())
    if as_json:
        output.print_json({"new": new, "experiment": locked.experiment, **event.plain()})
        return
    name = f"{locked.experiment}@{locked.update}"
    said = "need not be kept for good" if let_go else "is kept for good"
    output.print_lines(
        [
            f"  {name} {said}{again(new)}: sha256 {output.short(locked.manifest)}",
            f"  -> raykit gc {locked.experiment}{at_root(root)}",
        ]
    )


def _require_of_run(locked: LockedBase) -> None:
    if locked.origin == "adopted":
        raise NotFoundError(
            f"{locked.candidate} was made elsewhere: retention never touches it",
            field="EXPERIMENT@UPDATE",
            value=locked.candidate,
            rule="a checkpoint of a run",
            remedy=f"raykit candidates preserve {locked.candidate} --reason ... --by NAME",
        )


# --- export -------------------------------------------------------------------------------------------------


def export(
    weights: Annotated[
        str, typer.Argument(metavar="CANDIDATE|EXPERIMENT@UPDATE", help="What to export, approved for it.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is not there yet.")],
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Take an approved candidate out of the store: its weights, its manifest, and who has chosen it.

    Only verified bytes are written, and DIR appears whole or not at all. The export depends on the candidate from then
    on: raykit candidates dependents shows it. A diagnostic or search checkpoint is exported to be looked at, and only
    where a person, not a script, has approved that.

    Raises:
        InvalidInput: nobody was named, something is at DIR, or DIR lies in a store.
        NotFoundError: there are no such weights.
        ApprovalError: nobody has approved these very weights for export.
        GateError: no decision may rest on them any more.
        CorruptError: stored bytes do not match their digests, or a log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; nothing was exported.
    """
    from raykit.candidates.rules import let_depend
    from raykit.data.folder import require_new
    from raykit.read.bases import resolve_base
    from raykit.read.candidates import require_approved
    from raykit.records import Dependent
    from raykit.store.candidates import act
    from raykit.work import export as work

    person = person_of(by)
    folder = folder.absolute()  # what is recorded means the same to whoever reads it, wherever
    name = words(str(folder), field="DIR", what="a folder has to have a name")
    store, now = open_root(root).store, time.time()
    require_new(folder)
    locked = resolve_base(store, weights, read_data=False)
    let = require_approved(store, locked.manifest, "export", what=weights, now=now)
    found = work.weights_of(store, let)
    told = work.provenance(let, found, folder=folder, root=store.url, person=person, at=now)
    event = Dependent(
        candidate=let.candidate.name, manifest=locked.manifest, kind="export", name=name, person=person
    )

    def record() -> None:
        act(store, lambda registry: let_depend(registry, event), by=person, at=time.time())

    work.export(store, let, found, folder, told, before=record)
    if as_json:
        output.print_json({"folder": str(folder), **told})
    else:
        output.print_lines(_exported(let.candidate.name, folder, found, scripted=let.approval.scripted))


def _exported(name: str, folder: Path, found: Weights, *, scripted: bool) -> Iterator[str]:
    size_bytes = sum(each.size_bytes for each in found.files)
    yield f"  {name} is exported to {folder}"
    yield from output.facts(
        [
            ("files", ", ".join(f"{each.name} sha256 {output.short(each.sha256)}" for each in found.files)),
            ("size", output.size(size_bytes)),
            ("beside", "manifest.json, provenance.json: what it is, and who has chosen it"),
            *([("scripted", "its approval is a script's: not for production")] if scripted else []),
        ]
    ).splitlines()
    yield f"  -> raykit candidates dependents {name}"
