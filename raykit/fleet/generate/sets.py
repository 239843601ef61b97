"""The synthetic sets of a plan as a launch finds them: may they be made, from what, and under which contract.

All that refuses happens here, and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from raykit.data.inputs import CutInputs, cut_inputs, fetch_source, read_inputs
from raykit.errors import FleetPaused, GateError, PlanError
from raykit.fleet.qc.relock import require_same_plan
from raykit.fleet.site import Site, code_files
from raykit.ids import Digest, sha256
from raykit.pauses import Acts, InForce, in_force, require_running, scopes_of, way_on
from raykit.plan import plan_with
from raykit.plan.tables import Generate
from raykit.read.qc_runs import BegunTrials
from raykit.read.teachers import Teacher, teacher_of
from raykit.records import (
    AttemptStarted,
    Contracted,
    GenerationContract,
    InputsManifest,
    Reuse,
    SetManifest,
)
from raykit.shards.bounds import RULES
from raykit.shards.contract import Draft, changes, draft_of, require_reusable, require_same, reusable
from raykit.shards.spans import parse_spans, units_in
from raykit.shards.units import units_of
from raykit.store.base import ObjectStore
from raykit.store.generation import Shards, read_contract
from raykit.store.inputs import read_inputs_manifest
from raykit.store.plans import read_setting
from raykit.train import frozen
from raykit.train.find_recipe import load_recipe
from raykit.train.synthetic import check_generate

BYTES_PER_MB = 1_000_000

MAX_FILES = 8
"""So many files are named that differ."""

ALL = "all"
"""Of the units that are published, as many as count as they are."""

Next = Literal["nothing", "go on", "freeze"]
"""What there is to do: it is complete; it has a contract to go on with; one has to be frozen first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a person says who lets a set go on under another contract."""

    why: str
    person: str
    scripted: bool = False
    reuse: str | None = None
    """Published units that count as they are: `all`, or spans such as `0-57,60`; none if not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One set of a plan, as it stands before anything is done."""

    name: str
    target: Generate
    teacher: Teacher
    draft: Draft
    files: Mapping[str, bytes]
    """The recipe's own code."""
    inputs: CutInputs | None
    """What is kept with a new contract; None where rows are made from nothing, or nothing new has to be kept."""
    said: Contracted | None = None
    """The newest contract, as it was recorded."""
    contract: GenerationContract | None = None
    manifest: SetManifest | None = None
    next: Next
    held: InForce | None = None
    """What pauses its contract."""

    @property
    def digest(self) -> Digest | None:
        """The contract's identity."""
        return None if self.said is None else self.said.contract


def find_sets(
    site: Site, acts: Acts, *, only: str | None, changed: Changed | None, asked: bool = True
) -> tuple[Wanted, ...]:
    """The sets that are to be made, in the order of the plan; `asked` if the plan's recipe makes the rows.

    Raises:
        PlanError: the plan generates nothing, or not this set; its inputs or the recipe's code cannot be had.
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force for all of them.
        ApprovalError: no checkpoint is approved for generation.
        GateError: nothing was trained, the plan would train something else, a set was frozen otherwise, or units
            cannot be reused.
        InvalidInput: what is to be reused is no list of units.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    names = _names(site, only, changed)
    _require_trained(site)
    require_running(acts, site.name, scopes_of(site.name, "generate"))
    files = code_files(site)
    found = tuple(_find(site, acts, name, files, changed) for name in names)
    _require_one_to_make(site, found)
    if asked and any(each.next == "freeze" for each in found):
        _require_takes(site, found)
    return found


def _names(site: Site, only: str | None, changed: Changed | None) -> tuple[str, ...]:
    known = tuple(site.plan.generate)
    if not known:
        raise PlanError(
            f"the plan of {site.name} generates nothing",
            field="generate",
            rule="a table [generate.NAME]: rows, unit_rows, bounds",
        )
    if only is not None and only not in known:
        raise PlanError(
            f"the plan of {site.name} has no set {only}", field="--set", value=only, rule=", ".join(known)
        )
    if only is None and changed is not None and len(known) > 1:
        raise PlanError(
            f"the plan of {site.name} has {len(known)} sets, and a change is of one of them",
            field="--set",
            rule=", ".join(known),
        )
    return known if only is None else (only,)


def _require_trained(site: Site) -> None:
    attempt = None if site.locked is None else _newest_attempt(site)
    if attempt is None:
        raise GateError(
            f"nothing of {site.name} was trained yet: there is no checkpoint that could make a row",
            field="name",
            value=site.name,
            rule="a run whose checkpoint is approved for generation",
            remedy="raykit launch PLAN",
        )
    require_same_plan(site, attempt)


def _newest_attempt(site: Site) -> AttemptStarted | None:
    """Of the plan's run, or of the trial of its search that began last."""
    if site.plan.search is None:
        return site.run_log("generate").state.attempt
    begun = BegunTrials(site.store, site.name)()
    return replace(site, run=begun[-1]).run_log("generate").state.attempt if begun else None


def _require_takes(site: Site, found: tuple[Wanted, ...]) -> None:
    """Let only names pass in ways of decoding that the recipe's generate() takes."""
    recipe = load_recipe(site.plan.recipe, site.folder)
    for each in found:
        at = f"generate.{each.name}"
        check_generate(recipe, each.target.decode, at=f"{at}.decode")
        for name, decode in each.target.options.items():
            check_generate(recipe, decode, at=f"{at}.options.{name}")


def _require_one_to_make(site: Site, found: tuple[Wanted, ...]) -> None:
    """A paused contract leaves the others be; where nothing else is to do, it is what there is to say."""
    waiting = [each for each in found if each.held is not None]
    if not waiting or any(each.next != "nothing" and each.held is None for each in found):
        return
    held = waiting[0].held
    assert held is not None
    raise FleetPaused(
        f"{site.name}/{waiting[0].name} is {held.words}",
        field="scope",
        value=held.pause.scope,
        remedy=way_on(held),
    )


# --- one set ----------------------------------------------------------------------------------------------------


def _find(site: Site, acts: Acts, name: str, files: Mapping[str, bytes], changed: Changed | None) -> Wanted:
    store, target = site.store, site.plan.generate[name]
    teacher = teacher_of(store, site.plan, name, time.time())
    said = acts.contracted[name][-1] if acts.contracted.get(name) else None
    contract = None if said is None else read_contract(store, site.name, name, said.contract)
    rules = rules_of(contract, changed)
    manifest, cut = _inputs(site, name, contract, rules)
    # The model is built as the teacher was: of a trial, with the setting of its row.
    plan = plan_with(site.plan, read_setting(store, site.name, teacher.run))
    code = sha256(frozen.pack(files))
    draft = draft_of(plan, name, teacher=teacher.manifest, code=code, inputs=manifest, rules=rules)
    if contract is not None and changed is not None and changed.reuse is not None:
        _require_reusable(store, contract, draft, changed.reuse)
    closed = None if contract is None else Shards(store, contract).manifest()
    next_: Next = "freeze"
    if contract is not None and (changed is None or (closed is not None and not changes(contract, draft))):
        require_same(contract, draft, files=_other_files(store, contract, files, draft.code))
        next_ = "go on" if closed is None else "nothing"
    scope = None if said is None else f"contract:{said.contract}"
    held = None if scope is None or next_ != "go on" else in_force(acts, [scope])
    return Wanted(
        name=name,
        target=target,
        teacher=teacher,
        draft=draft,
        files=files,
        inputs=cut,
        said=said,
        contract=contract,
        manifest=closed,
        next=next_,
        held=held,
    )


def _other_files(
    store: ObjectStore, contract: GenerationContract, files: Mapping[str, bytes], code: Digest
) -> str:
    """Which files of the code are not as they were frozen: `recipe.py changed, notes.csv new`; empty if none."""
    if contract.code == code:
        return ""
    was = frozen.read_code(store, contract.experiment, contract.code)
    found = [
        f"{name} {'new' if name not in was else 'changed' if name in files else 'gone'}"
        for name in sorted({*was, *files})
        if was.get(name) != files.get(name)
    ]
    more = f" and {len(found) - MAX_FILES:,} more" if len(found) > MAX_FILES else ""
    return ", ".join(found[:MAX_FILES]) + more


def _require_reusable(store: ObjectStore, old: GenerationContract, draft: Draft, wanted: str) -> None:
    """Refuse, before anything is started, what could not be reused whatever the producer says."""
    known = {name: getattr(draft, name) for name in ("inputs", "samples", "rows", "unit_rows")}
    reuse_of(store, old, old.model_copy(update=known), wanted)


def reuse_of(
    store: ObjectStore, old: GenerationContract, new: GenerationContract, wanted: str
) -> Reuse | None:
    """The units of `old` that count as they are under `new`: as `wanted` says; None if there is none.

    Raises:
        GateError: rows of the two are not the same kind of thing, or a wanted unit has no receipt.
        InvalidInput: `wanted` is no list of units of `old`.
        CorruptError: a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    published = Shards(store, old).published()
    if wanted == ALL:
        return reusable(old, new, published)
    spans = parse_spans(wanted, units=units_of(old), field="--reuse")
    return require_reusable(old, new, published, units_in(spans))


def rules_of(contract: GenerationContract | None, changed: Changed | None = None) -> int | None:
    """The rules that a set is held to: those of today, but for one under way, which keeps its own."""
    return RULES if contract is None or changed is not None else contract.rules


def _inputs(
    site: Site, name: str, contract: GenerationContract | None, rules: int | None
) -> tuple[InputsManifest | None, CutInputs | None]:
    """What the plan's inputs come to, and what of it is not kept yet.

    The rows are made from the copy that was frozen, so that a source which is gone since changes nothing.
    """
    target, at = site.plan.generate[name], f"generate.{name}.inputs"
    if target.inputs is None:
        return None, None
    kept = _kept(site.store, contract)
    try:
        data = fetch_source(target.inputs, folder_of(site), at=at)
    except PlanError:
        if kept is not None and kept.source == target.inputs:
            return kept, None
        raise
    table = read_inputs(data, target.inputs, at=at, types=target.types, guess=rules is None)
    cut = cut_inputs(table, target.inputs, input_bytes=int(target.input_mb * BYTES_PER_MB), at=at)
    return cut.manifest, cut


def folder_of(site: Site) -> Path:
    """Where the paths of a plan begin."""
    return site.folder if site.plan_path is None else site.plan_path.parent


def _kept(store: ObjectStore, contract: GenerationContract | None) -> InputsManifest | None:
    """The inputs that a contract was frozen with."""
    if contract is None or contract.inputs is None:
        return None
    return read_inputs_manifest(store, contract.experiment, contract.inputs)
