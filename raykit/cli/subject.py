"""The plan that an act is about: one that was locked, or a file of one that was not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.errors import NotFoundError

if TYPE_CHECKING:
    from raykit.plan import Diagnosis, Lock, Plan, Stage
    from raykit.store.base import ObjectStore

Target = Annotated[
    str, typer.Argument(metavar="NAME|PLAN", help="An experiment of the store, or a plan file.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An experiment, by the plan that was locked for it or by the file of one that was not."""

    typed: str
    name: str
    plan: str
    """The digest of the lock; of a plan that was never locked, that of its file."""
    decision: str
    contract: str
    diagnosis: Diagnosis | None
    hypothesis: str | None
    """Of its search."""
    holdouts: tuple[str, ...]
    """The sources of the splits that select nothing."""
    stage: Stage
    lock: Lock | None
    """The newest lock, if it is of this very plan."""
    file: bool
    """It was named by its plan file, so that nothing of it need be in the store."""

    @property
    def ideas(self) -> tuple[str, ...]:
        """Everything that it believes may be so."""
        of_diagnosis = [] if self.diagnosis is None else [h.says for h in self.diagnosis.hypotheses.values()]
        return (*([self.hypothesis] if self.hypothesis else []), *of_diagnosis)


def is_file(target: str) -> bool:
    """Whether a plan file is meant, and not an experiment."""
    return target.endswith(".toml") or Path(target).is_file()


def named(target: str) -> tuple[str, bool]:
    """The experiment that `target` names, and whether it is by the file of its plan.

    Raises:
        UnsafeNameError: it cannot be a name.
        PlanError: the plan file is wrong.
    """
    from raykit.ids import safe_name
    from raykit.read.planfile import read_plan_file

    if not is_file(target):
        return safe_name(target), False
    return read_plan_file(Path(target))[1].name, True


def subject_of(store: ObjectStore, target: str) -> Subject:
    """The experiment that `target` names.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: nothing was locked under that name.
        PlanError: the plan file is wrong.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.ids import safe_name
    from raykit.store.plans import newest_stored_lock, read_plan

    if is_file(target):
        from raykit.read.planfile import read_plan_file

        _, plan = read_plan_file(Path(target))
        lock = newest_stored_lock(store, plan.name)
        return _subject(target, plan, lock, file=True)
    lock = newest_stored_lock(store, safe_name(target))
    if lock is None:
        raise NotFoundError(
            f"no plan was locked as {target} in {store.url}: one that was only checked leaves nothing there",
            field="NAME",
            value=target,
            rule="an experiment that was launched, or the file of its plan",
            remedy="say it of the plan's file instead, such as plan.toml",
        )
    return _subject(target, read_plan(store, target, lock.digest), lock, file=False)


def _subject(target: str, plan: Plan, lock: Lock | None, *, file: bool) -> Subject:
    from raykit.ids import digest_of
    from raykit.plan import contract, decision_digest
    from raykit.review.stage import stage_of

    shared = plan.shared.sha256 if plan.shared else None
    fits = lock is not None and (lock.plan_sha256, lock.shared) == (plan.sha256, shared)
    sources = {} if plan.data is None else plan.data.sources()
    return Subject(
        typed=target,
        name=plan.name,
        plan=lock.digest if lock is not None and fits else plan.sha256,
        decision=decision_digest(plan),
        contract=lock.contract if lock is not None and fits else digest_of(contract(plan)),
        diagnosis=plan.diagnosis,
        hypothesis=plan.search.hypothesis if plan.search else None,
        holdouts=(*sources.get("report_only", ()), *sources.get("sealed", ())),
        stage=stage_of(plan)[0],
        lock=lock if fits else None,
        file=file,
    )
