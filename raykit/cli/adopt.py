"""`raykit adopt`: weights that were made elsewhere become a base to start from, under a name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import output
from raykit.cli.options import (
    DEFAULT_ROOT,
    Json,
    Root,
    at_root,
    holds_store,
    open_root,
    person_of,
    store_line,
    words,
)
from raykit.cli.progress import bar
from raykit.errors import InvalidInput
from raykit.ids import safe_name
from raykit.records import CandidateRole

if TYPE_CHECKING:
    from raykit.data.weights import Weights
    from raykit.records import Adopted, Registered

HOUR_MS = 3_600_000
MAX_HOURS = 1e9

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A .safetensors file, a Hugging Face or torch DCP folder.")
]
Name = Annotated[str, typer.Option("--as", metavar="NAME", help="The name that plans call it by.")]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="PERSON", envvar="RAYKIT_PERSON", help="The person who brings it."),
]
Role = Annotated[CandidateRole, typer.Option("--role", help="What it is.")]
Updates = Annotated[
    int, typer.Option("--updates", min=0, help="Updates that were trained, as its people say.")
]
Rows = Annotated[int | None, typer.Option("--rows", min=0, help="Rows that it was trained on, as they say.")]
Hours = Annotated[
    float | None,
    typer.Option("--accelerator-hours", min=0, help="Accelerator time that it took, as they say."),
]
Note = Annotated[
    str | None,
    typer.Option("--source-note", metavar="TEXT", help="Where it is from, such as hf:org/name@REV."),
]
Trust = Annotated[
    bool, typer.Option("--trust-pickle", help="Read the pickles that a torch DCP folder is made of.")
]

Correct = Annotated[
    bool,
    typer.Option("--correct", help="What was said of NAME before was wrong: this counts instead, whole."),
]


def adopt(
    source: Source,
    name: Name,
    by: By = None,
    role: Role = "base",
    updates: Updates = 0,
    rows: Rows = None,
    accelerator_hours: Hours = None,
    source_note: Note = None,
    trust_pickle: Trust = False,
    correct: Correct = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Keep weights that were made elsewhere, by their bytes, so that a plan can start from them.

    How they were trained is not known here and is not made up: what you say of it is kept as your word. The same
    weights again change nothing; with --correct, what you say of them now counts, and what was said before stays on
    record.

    Raises:
        InvalidInput: SOURCE cannot be read, is no model in safetensors or DCP, or holds a NaN; nobody was named; NAME
            stands for other weights, these have another name, or something else was said of them.
        UnsafeNameError: NAME cannot be a name.
        ConflictError: a key of the store holds other bytes.
        CorruptError: the registry is damaged.
        UnusableRootError: the root is neither a path nor an S3 URL, or cannot be trusted.
        StoreUnavailableError: the store did not take it.
        UnknownOutcomeError: a reply was lost; say it again.
    """
    from raykit.data.weights import survey
    from raykit.store.candidates import find_candidate, is_registered, keep_adopted, read_candidates, register
    from raykit.store.probe import probe

    person = person_of(by)
    found = open_root(root)
    if safe_name(name) in found.experiments():
        raise InvalidInput(
            f"{name} is an experiment of {found.store.url}",
            field="--as",
            value=name,
            rule="a name that nothing else has: a plan names its base by it",
        )
    weights = _open(source, trust_pickle=trust_pickle)
    with bar("read", quiet=as_json) as tell:
        manifest = survey(weights, tell)
    event = _event(name, role, manifest, person, updates, rows, accelerator_hours, source_note)
    event = event.model_copy(update={"corrects": correct})
    before, opened = find_candidate(found.store, name), not holds_store(found)
    new = not is_registered(read_candidates(found.store), event)
    if new:
        probe(found.store)
        keep_adopted(found.store, manifest, weights.contents)
        new = register(found.store, event, at=time.time())
    said = find_candidate(found.store, name) or event
    if as_json:
        told = {"new": new, "new_store": opened, **said.plain(), "files": manifest.plain()["files"]}
        output.print_json(told)
    else:
        output.print_lines(_lines(weights, manifest, said, before if new else said, at=at_root(root)))
        output.print_lines(store_line(found, opened))


def _open(named: str, *, trust_pickle: bool) -> Weights:
    """The weights at SOURCE, by what is there.

    Raises:
        InvalidInput: nothing that could be adopted is there.
    """
    from raykit.data import weights

    if "://" in named or named.startswith(("hf:", "dcp:")):
        raise weights.refused(
            f"{named} is not a path of this machine",
            rule="a file or a folder",
            remedy="copy it here first, at one revision, and name that with --source-note",
        )
    source = Path(named)
    if source.is_symlink():
        raise weights.refused(
            f"{source} is a symbolic link", rule="the files themselves", remedy=f"cp -rL {source} COPY"
        )
    if not source.is_dir():
        if source.suffix in weights.PICKLES:
            raise weights.is_pickle(source)
        return weights.open_safetensors(source)
    names = weights.folder_names(source)
    if ".metadata" not in names or any(name.endswith(".safetensors") for name in names):
        return weights.open_folder(source)
    if not trust_pickle:
        raise weights.refused(
            f"{source} is a torch DCP folder: its .metadata and the frame of each tensor are pickles",
            rule="safetensors; or pickles that you trust, read with nothing but the names that DCP needs",
            remedy="--trust-pickle, if you know who wrote it",
        )
    from raykit.train.dcp import open_dcp

    return open_dcp(source)


def _event(
    name: str,
    role: CandidateRole,
    manifest: Adopted,
    person: str,
    updates: int,
    rows: int | None,
    hours: float | None,
    note: str | None,
) -> Registered:
    from raykit.records import Registered
    from raykit.store.candidates import adopted_digest, adopted_key

    if hours is not None and not hours <= MAX_HOURS:
        raise InvalidInput(
            f"{hours} accelerator-hours is no time",
            field="--accelerator-hours",
            rule=f"at most {MAX_HOURS:,.0f}",
        )
    return Registered(
        candidate=name,
        role=role,
        origin="adopted",
        manifest=adopted_digest(manifest),
        key=adopted_key(manifest),
        update=updates,
        source=None if note is None else words(note, field="--source-note", what="it says nothing"),
        rows=rows,
        accelerator_ms=None if hours is None else round(hours * HOUR_MS),
        history="absent",
        person=person,
    )


def _lines(
    weights: Weights, manifest: Adopted, event: Registered, before: Registered | None, *, at: str
) -> Iterator[str]:
    """What is known of NAME now. `before` is what was said of it until now, `event` itself if that stays so."""
    size = output.size(sum(file.size_bytes for file in manifest.files))
    yield f"  {event.candidate} is adopted{_how(event, before)}"
    rows = [
        (
            "weights",
            f"{output.count(manifest.tensors)} tensors, {output.count(manifest.elements)} numbers, {size}",
        ),
        ("bytes", f"{manifest.model.name} sha256 {output.short(manifest.model.sha256)}, from {weights.what}"),
        (
            "manifest",
            f"sha256 {output.short(event.manifest)}, of the list of its files: what plans name it by",
        ),
        ("history", "absent: nothing is known here of how it was trained"),
        (f"{event.person} says", said_of(event)),
    ]
    if before is not None and before != event:
        rows.append(("before", f"{before.person} had said: {said_of(before)}"))
    if weights.left_out:
        rows.append(("left out", ", ".join(weights.left_out)))
    rows.append(
        ("next", f'candidate = "{event.candidate}" under [base] in a plan, then raykit plan check PLAN{at}')
    )
    yield from output.facts(rows).splitlines()


def _how(event: Registered, before: Registered | None) -> str:
    if before is None:
        return ""
    return " already; nothing was written" if before == event else ", and what was said of it is corrected"


def said_of(event: Registered) -> str:
    """What a person says of it, as nothing but that."""
    told = [
        f"{output.count(event.update)} updates" if event.update else None,
        f"{output.count(event.rows)} rows" if event.rows is not None else None,
        f"{event.accelerator_ms / HOUR_MS:,.1f} accelerator-hours"
        if event.accelerator_ms is not None
        else None,
        event.source,
        f"role {event.role}" if event.role != "base" else None,
    ]
    return ", ".join(each for each in told if each) or "nothing about it"
