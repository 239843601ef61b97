"""How an attempt starts: from which checkpoint, how exactly, and whether that is enough.

Used twice with the same result: by the launch before it starts anything, and by rank 0 when it writes
`attempt_started`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from raykit.errors import ExactnessError
from raykit.exactness import bound, falls, least, of_commit
from raykit.ids import digest_of
from raykit.plan import Plan, contract
from raykit.reconcile import RunState, falls_short, lowest
from raykit.records import (
    Amended,
    AttemptStarted,
    Difference,
    Exactness,
    ExperimentEntry,
    ResumeReceipt,
)
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.commit import Good, newest_good
from raykit.store.log import Log
from raykit.store.people import harmless_of
from raykit.store.plans import read_run_plan
from raykit.train import facts, frozen
from raykit.train.inputs import Task
from raykit.train.owncode import code_differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The decision: `good` is None for a run that begins at update 0."""

    attempt: int
    good: Good | None
    exactness: Exactness
    receipt: ResumeReceipt | None
    recorded: int
    """The last update that has a durable row, from any attempt."""


def decide_start(
    store: ObjectStore,
    task: Task,
    plan: Plan,
    state: RunState,
    now: Mapping[str, str],
    members: Difference | None,
    *,
    code: Mapping[str, bytes] | None = None,
) -> Start:
    """Choose the checkpoint and class of the next attempt. Writes nothing.

    `now` are the facts of this gang, `members` how the data differ from the stored members, if they do; `code` are
    the files of this start's recipe folder where they are not in the store yet.

    Raises:
        ExactnessError: the resume would be less exact than the plan needs, and nobody has allowed that.
        CorruptError: no checkpoint verifies, or stored plans or code do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    attempt = (state.attempt.attempt if state.attempt else 0) + 1
    recorded = state.recorded()
    compared = compare_start(store, task, plan, state, now, members, code=code)
    if compared.good is None:
        require(plan, compared.found, store, task, target=compared.target)
        return Start(attempt=attempt, good=None, exactness="exact", receipt=None, recorded=recorded)
    good, limit = compared.good, bound(state, compared.harmless)
    here = least(lowest(compared.found), limit)
    receipt = ResumeReceipt(
        update=good.commit.update,
        attempt=good.commit.attempt,
        manifest_sha256=good.commit.sha256,
        needed=plan.run.needed,
        exactness=here,
        differences=compared.found,
        passed_over=good.passed_over,
        amendment=require(plan, compared.found, store, task, target=compared.target),
    )
    left = least(here, of_commit(state, good.commit, compared.harmless).exactness)
    return Start(attempt=attempt, good=good, exactness=left, receipt=receipt, recorded=recorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a start would go on from, and everything in which it differs from what made that."""

    good: Good | None
    found: tuple[Difference, ...]
    target: str
    """What an amending command has to name: the experiment stands for its frozen plan and code, a changed plan file
    for itself."""
    harmless: frozenset[str] = frozenset()
    """State outside of checkpoints that does not matter, as the plan or a person says."""


def compare_start(
    store: ObjectStore,
    task: Task,
    plan: Plan,
    state: RunState,
    now: Mapping[str, str],
    members: Difference | None,
    *,
    code: Mapping[str, bytes] | None = None,
) -> Origin:
    """The newest checkpoint that verifies, and the differences from the attempt that made it.

    Raises:
        CorruptError: no checkpoint verifies, or stored plans or code do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    changed = () if members is None else (members,)
    good = newest_good(store, state.commits)
    if good is None:
        return Origin(good=None, found=changed, target=task.experiment)
    made_by = next(a for a in state.attempts if a.attempt == good.commit.attempt)
    harmless = harmless_of(store, task.experiment, plan)
    found = (*_differences(store, task, plan, made_by, now, code), *_shown(plan, state, harmless), *changed)
    as_frozen = (made_by.plan, made_by.code) == (task.plan, task.code)
    target = task.experiment if as_frozen else "PLAN"
    return Origin(good=good, found=found, target=target, harmless=harmless)


def _shown(plan: Plan, state: RunState, harmless: frozenset[str]) -> Iterator[Difference]:
    """What has shown that a resume of this run is less than it was to be; nothing where the plan goes on anyway."""
    if plan.run.on_inexact == "continue":
        return
    for fall in falls(state, harmless):
        yield Difference(
            what=f"what was found at update {fall.update:,}",
            was="as declared",
            now=fall.words,
            allows=fall.to,
        )


def _differences(
    store: ObjectStore,
    task: Task,
    plan: Plan,
    made_by: AttemptStarted,
    now: Mapping[str, str],
    code: Mapping[str, bytes] | None,
) -> Iterator[Difference]:
    yield from facts.of_facts(made_by.facts, now)
    if made_by.plan != task.plan:
        was = read_run_plan(store, task.experiment, task.run, made_by.plan)
        yield from facts.of_plans(contract(was), contract(plan))
    if made_by.code != task.code:
        yield from code_differences(
            plan.recipe,
            frozen.read_code(store, task.experiment, made_by.code),
            frozen.read_code(store, task.experiment, task.code) if code is None else code,
        )
    if made_by.data != task.data:
        yield Difference(what="split members", was=made_by.data[:12], now=task.data[:12], allows="inexact")


def require(
    plan: Plan, found: tuple[Difference, ...], store: ObjectStore, task: Task, *, target: str
) -> int | None:
    """The number of the amendment that allows these differences; None if none is needed.

    Raises:
        ExactnessError: they leave less than the plan needs, and nobody has allowed exactly these.
    """
    needed: Exactness = plan.run.needed
    left = lowest(found)
    if not falls_short(left, needed):
        return None
    digest = difference_digest(found)
    log = Log(store, layout.experiment_log(task.experiment), ExperimentEntry, by="reader")
    for entry in reversed(log.refresh()):
        for event in entry.events:
            if isinstance(event, Amended) and _covers(event, task, digest, left):
                return entry.n
    worst = [difference for difference in found if falls_short(difference.allows, needed)]
    named = "; ".join(f"{d.what}: {d.was} -> {d.now} leaves {d.allows}" for d in worst)
    raise ExactnessError(
        f"this resume would be {left}, the plan needs {needed}: {named}",
        field="run.resume",
        value=needed,
        rule="put back what differs, or let a person allow exactly these differences",
        remedy=f'raykit resume {target} --as {left} --reason "..." --by NAME',
    )


def _covers(amended: Amended, task: Task, digest: str, left: Exactness) -> bool:
    exactly = amended.run == task.run and amended.differences == digest
    return exactly and not falls_short(left, amended.allows)


def difference_digest(found: tuple[Difference, ...]) -> str:
    """What an amendment names: exactly these differences."""
    return digest_of([difference.plain() for difference in found])
