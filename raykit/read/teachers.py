"""The checkpoint that makes a synthetic set, once a person has let it: which one a plan means, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from raykit.candidates import Candidate, Registry
from raykit.errors import ApprovalError, GateError, RaykitError
from raykit.ids import Digest
from raykit.plan import Plan
from raykit.read.candidates import require_approved, run_of_key
from raykit.read.qc import read_qc
from raykit.read.qc_runs import MAIN
from raykit.read.root import open as open_root
from raykit.records import CandidateApproved
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_candidate_registry

SELECTED = "selected"
"""What a plan says where it means whichever checkpoint of its own run was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """A checkpoint that may make rows, and who lets it."""

    candidate: str
    """Its name in the registry."""
    manifest: Digest
    key: str
    """Its manifest in the store."""
    run: str
    update: int
    scripted: bool
    """Only a script has approved it, or reviewed its QC: what it makes never goes into production."""
    approval: CandidateApproved


def teacher_of(store: ObjectStore, plan: Plan, target: str, now: float) -> Teacher:
    """The teacher of the set `target` of a plan, approved for generation by name.

    Raises:
        ApprovalError: no checkpoint is approved for generation, or several are, and the plan says none by name.
        GateError: the one that is meant was not trained by this experiment, or no decision may rest on it any more.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    wanted = plan.generate[target].teacher
    registry = read_candidate_registry(store)
    own = [each for each in registry.candidates.values() if each.said.experiment == plan.name]
    if wanted == SELECTED:
        candidate = _approved(store, own, plan.name, target, now)
    else:
        candidate = _named(registry, wanted, plan.name, target)
    let = require_approved(store, candidate.manifest, "generation", what=candidate.where, now=now)
    said = candidate.said
    return Teacher(
        candidate=candidate.name,
        manifest=candidate.manifest,
        key=said.key,
        run=run_of_key(said.key),
        update=said.update,
        scripted=let.approval.scripted or let.examination.scripted,
        approval=let.approval,
    )


def _named(registry: Registry, name: str, experiment: str, target: str) -> Candidate:
    field = f"generate.{target}.teacher"
    found = registry.candidates.get(name)
    if found is None:
        own = [each.name for each in registry.candidates.values() if each.said.experiment == experiment]
        raise ApprovalError(
            f"there is no candidate {name}",
            field=field,
            value=name,
            rule=f"one of {', '.join(own)}" if own else "a registered candidate of this experiment",
            remedy=f"raykit candidates register {name} {experiment} --role production-candidate --by NAME",
        )
    if found.said.experiment != experiment:
        whose = found.said.experiment or "elsewhere"
        raise GateError(
            f"{name} was trained by {whose}, and the recipe of {experiment} makes the rows",
            field=field,
            value=name,
            rule=f"a checkpoint of {experiment}: what is frozen with a set is one recipe and its own weights",
            remedy=f"give the plan of {whose} the table [generate.{target}], and generate there",
        )
    return found


def _approved(
    store: ObjectStore, own: list[Candidate], experiment: str, target: str, now: float
) -> Candidate:
    """The one of an experiment's candidates that is approved for generation."""
    field = f"generate.{target}.teacher"
    approved = [each for each in own if each.approved_for("generation") is not None]
    if len(approved) > 1:
        names = ", ".join(f"{each.name} (update {each.said.update:,})" for each in approved)
        raise ApprovalError(
            f"{len(approved)} checkpoints of {experiment} are approved for generation: {names}",
            field=field,
            value=SELECTED,
            rule="the name of one of them",
            remedy=f'teacher = "{approved[-1].name}" in [generate.{target}]',
        )
    if not approved:
        raise ApprovalError(
            f"{experiment}/{target} waits for an approved checkpoint",
            field=field,
            value=SELECTED,
            rule="a checkpoint whose QC a person has reviewed, registered and approved for generation by name",
            remedy=_way_on(store, own, experiment, now),
        )
    return approved[0]


def _way_on(store: ObjectStore, own: list[Candidate], experiment: str, now: float) -> str:
    """The acts that are missing, in their order, as they would be typed."""
    standing = [each for each in own if each.rejected is None]
    run = MAIN
    if standing:
        newest = standing[-1]
        name, update, run = newest.name, str(newest.said.update), run_of_key(newest.said.key)
        register = []
    else:
        name, update = f"{experiment}-teacher", _selected_update(store, experiment)
        weights = f"{experiment}@{update}"
        register = [f"raykit candidates register {name} {weights} --role production-candidate --by NAME"]
    whose = experiment if run == MAIN else f"{experiment}/{run}"
    review = f"raykit qc review {whose} --update {update} --verdict passed --note ... --by NAME"
    acts = [
        *([] if _is_reviewed(store, experiment, run, update, now) else [review]),
        *register,
        f"raykit candidates approve {name} --use generation --reason ... --by NAME",
    ]
    return "   then   ".join(acts)


def _is_reviewed(store: ObjectStore, experiment: str, run: str, update: str, now: float) -> bool:
    """Whether the QC of that checkpoint has passed, and a person has seen it."""
    try:
        found = read_qc(store, experiment, run, now=now)
    except RaykitError:
        return False  # as below: this is a hint
    standings = () if found is None else (*found.backlog.standings, *found.backlog.others)
    return any(each.usable and str(each.update) == update for each in standings)


def _selected_update(store: ObjectStore, experiment: str) -> str:
    """The update of the checkpoint that the plan's rule selects; without one, of the newest."""
    root = open_root(store)
    try:
        view = root.run(f"{experiment}/main")
        selected = root.selected(view)
    except RaykitError:
        return "UPDATE"  # this is a hint: what cannot be read is named where it matters
    if selected is None:
        counting = [each.commit for each in view.commits if each.counts]
        selected = counting[-1] if counting else None
    return "UPDATE" if selected is None else str(selected.update)
