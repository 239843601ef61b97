"""Before anything starts: is the run complete, held, resumable; then freeze what it is made of, and take it.

All that refuses a launch happens here and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata

from raykit import reconcile as brain
from raykit.errors import ConflictError, GateError, HeldError, RaykitError
from raykit.fleet.accelerators import there_are
from raykit.fleet.evidence import gather
from raykit.fleet.qc.heed import QC_GATE, require_answered
from raykit.fleet.qc.room import require_apart
from raykit.fleet.session import job_here
from raykit.fleet.site import Site, changed_members, code_files, git_facts, make_ready, task_of
from raykit.fleet.spending import (
    Approving,
    Spending,
    approve,
    failed_gates,
    open_spending,
    require_spendable,
)
from raykit.ids import digest_of, sha256
from raykit.pauses import Acts, fold_acts, require_running, scopes_of
from raykit.plan import Lock, contract, differences
from raykit.read.planfile import lock_beside
from raykit.records import (
    Amended,
    AttemptEnded,
    Difference,
    Exactness,
    ExperimentEntry,
    Launched,
    Locked,
    Record,
    RunEntry,
    RunRecord,
    Setting,
)
from raykit.review import judged, require_passed, review, statement
from raykit.store import layout
from raykit.store.log import Log, RunLog
from raykit.store.people import People
from raykit.store.place import alive, this_place
from raykit.store.plans import read_plan, read_setting
from raykit.store.probe import probe
from raykit.train import facts, frozen
from raykit.train.inputs import Task
from raykit.train.owncode import code_differences
from raykit.train.prepare import Prepared, freeze
from raykit.train.resume import Start, compare_start, decide_start, difference_digest


def completed_at(site: Site, state: brain.RunState) -> int | None:
    """The last update of a run that is complete under this very plan and code; None if it is not complete.

    Raises:
        GateError: it is complete, under a plan or code that would train something else.
        PlanError: the recipe's code cannot be had.
        CorruptError: the stored plan or code does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    if not state.completed:
        return None
    ended, attempt = state.ended, state.attempt
    assert ended is not None and attempt is not None
    was = contract(read_plan(site.store, site.name, attempt.plan))
    changed = [f"{field}: {old} -> {new}" for field, old, new in differences(was, contract(site.plan))]
    files = code_files(site)
    if site.locked is None or site.locked.code != sha256(frozen.pack(files)):
        # the newest lock may have other code than the run: that of `raykit qc relock`, which trains nothing
        code = code_differences(
            site.plan.recipe, frozen.read_code(site.store, site.name, attempt.code), files
        )
        changed += [f"{d.what}: {d.was} -> {d.now}" for d in code if d.allows != "exact"]
    if changed:
        raise GateError(
            f"{site.name} is complete, under another plan or code: {'; '.join(changed[:5])}",
            field="name",
            value=site.name,
            rule="one name, one trained result",
            remedy="give the new plan a name of its own; to examine what was trained with the code of today: "
            'raykit qc relock PLAN --deviation "what was wrong" --by NAME',
        )
    return ended.update


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A run that is this launch's: what its workers are told, how it goes on, and what it spends from."""

    task: Task
    start: Start
    spending: Spending


def claim(
    site: Site,
    log: RunLog,
    people: People,
    approved: Approving | None = None,
    deviation: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    name: str | None = None,
) -> Claimed:
    """Decide how the run goes on, freeze what it is made of, and take it for a new launch.

    `name` is what the launch is called, unless one of that name was there before.

    `approved` is what a person has said beforehand about money; without it, what needs an approval is refused. So is
    a plan that changed after results were seen, without a word on the `deviation`. Before an expensive plan starts, or
    a person is asked to approve it, its short statement is said.

    Raises:
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        ApprovalError: a person has to approve this plan or this restart first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay.
        ReplanError: money has to be moved first.
        GateError: a necessary check has failed, and no repair is recorded; a checkpoint has failed its QC, and nobody
            has answered; checks would share what training holds; or there is nothing to train.
        ReviewError: the plan needs revision.
        PlanError: the recipe, its params, data or splits are not usable, or the plan leaves something unsaid.
        UnusableRootError: the store cannot be written or trusted.
        HeldError: another launch that is alive holds the run.
        ExactnessError: the resume would be less exact than the plan needs.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    acts = people.refresh()
    require_running(acts, site.name, scopes_of(site.name, "train", digest_of(contract(site.plan))))
    require_apart(site.plan)
    require_answered(site.store, site.name, ended=QC_GATE in log.state.failed)
    ready = make_ready(site)
    task = task_of(site, ready, name if name is not None and _is_new(log, name) else None)
    _takeable(log.state, task)
    start = decide_start(
        site.store,
        task,
        site.plan,
        log.state,
        facts.expected(site.plan, ready.outside, there=there_are()),
        changed_members(site, ready),
        code=ready.files,
    )
    deviation = deviation or _amended(start, acts)
    ready = reviewed(site, ready, log, approved, deviation, say)
    task = replace(task, plan=ready.lock_sha256)
    _require_spendable(site, ready.lock, log, people, task, approved)
    probe(site.store)
    lock(site, ready, log, deviation)
    spending = open_spending(site, ready.lock, log, acts)
    if approved is not None:
        approve(site, spending, approved)
    _take(log, task)
    return Claimed(task=task, start=start, spending=spending)


def _is_new(log: RunLog, name: str) -> bool:
    return not any(isinstance(event, Launched) and event.launch == name for event in log.state.events)


def claim_trial(
    site: Site,
    log: RunLog,
    acts: Acts,
    task: Task,
    spending: Spending,
    *,
    setting: Setting,
    locked: Locked,
    code: Mapping[str, bytes],
    outside: Mapping[str, str],
) -> Claimed:
    """Take one trial of a search for a new launch. All that refuses a search was asked before.

    `site` is that of the trial, `task` that of the search with the trial's own launch; `locked` and `code` are what was
    frozen for the search, `outside` the facts of what its recipe imports beside that.

    Raises:
        HeldError: another launch that is alive holds the run.
        ExactnessError: the resume would be less exact than the plan needs.
        ConflictError: the run is recorded with another setting.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    task = replace(task, run=site.run, contract=digest_of(contract(site.plan)))
    log.refresh()
    _takeable(log.state, task)
    _record(site, locked, setting)
    now = facts.expected(site.plan, outside, there=there_are())
    start = decide_start(site.store, task, site.plan, log.state, now, None, code=code)
    attempts = replace(spending.attempts, trial=site.run, failed=failed_gates(log.state, acts))
    _take(log, task)
    return Claimed(task=task, start=start, spending=replace(spending, attempts=attempts))


def _amended(start: Start, acts: Acts) -> str | None:
    """What a person said who allowed exactly these differences: it is said of the deviation, too."""
    if start.receipt is None or start.receipt.amendment is None or not acts.amended:
        return None
    return acts.amended[-1].reason


def reviewed(
    site: Site,
    ready: Prepared,
    log: RunLog,
    approved: Approving | None,
    deviation: str | None,
    say: Callable[[str], None],
) -> Prepared:
    """The same, with a lock that says what its review saw. A plan that runs as it was locked was judged then.

    Raises:
        ApprovalError: a person has to part this work from another account first.
        GateError: there is nothing to train, or the base failed its QC.
        ReviewError: the plan needs revision.
        PlanError: the plan leaves something unsaid.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    if site.plan.base is not None and site.plan.base.start == "use":
        raise GateError(
            f"{site.name} uses {site.plan.base.candidate} as it is: there is nothing to train",
            field="base.start",
            value="use",
            remedy='raykit conclude PLAN --outcome no-full-run --says "..." --by NAME',
        )
    if log.state.attempts and ready.lock == site.locked:
        return ready
    for line in code_since_checked(site, ready):
        say(line)
    case = gather(site, ready=ready, approved=approved, deviation=deviation)
    # a failed check is for the door, which knows what may go on
    evidence = replace(case.evidence, failed_gates=())
    found = review(evidence)
    require_passed(evidence, found)
    if evidence.strict:
        for label, text in statement(evidence, found):
            say(f"{label:<11}  {text}")
    if ready.lock.judged is not None:
        return ready
    seen = judged(evidence, found)
    return replace(ready, lock=ready.lock.model_copy(update={"judged": seen}))


def code_since_checked(site: Site, ready: Prepared) -> Iterator[str]:
    """A line where the code that is about to be locked is not what the plan was checked with."""
    checked = None if site.plan_path is None else lock_beside(site.plan_path)
    known = site.locked is not None and site.locked.code == ready.code_sha256
    if checked is None or known or checked.name != site.name or checked.code == ready.code_sha256:
        return
    yield (
        f"the recipe's code was changed since `raykit plan check` ({checked.code[:12]}, now {ready.code_sha256[:12]}): "
        "it is locked anew as it is now"
    )


def _require_spendable(
    site: Site, sealed: Lock, log: RunLog, people: People, task: Task, approved: Approving | None
) -> None:
    """As `require_spendable`; but where another launch has just taken the run, that is what is said."""
    try:
        require_spendable(site, sealed, log, people.acts, approved)
    except RaykitError:
        log.refresh()
        _takeable(log.state, task)
        raise


def _seen(state: brain.RunState, task: Task) -> brain.Seen:
    holder = state.launched
    return brain.Seen(
        launch=task.launch,
        place=this_place(),
        holder_alive=None if holder is None else alive(holder.place),
    )


def _takeable(state: brain.RunState, task: Task) -> brain.TakeRun:
    """The action that takes the run.

    Raises:
        HeldError: somebody alive has it.
    """
    (action,) = brain.reconcile(brain.Policy(curves_every=1), state, _seen(state, task), time.time())
    if isinstance(action, brain.RefuseHeld):
        raise _held(action, task)
    assert isinstance(action, brain.TakeRun)
    return action


def require_free(state: brain.RunState, task: Task) -> None:
    """Let only what no launch has be changed beneath it, be it complete or not.

    Raises:
        HeldError: somebody alive has it.
    """
    held = brain.held_by(state, _seen(state, task), time.time())
    if held is not None:
        raise _held(held, task)


def _held(held: brain.RefuseHeld, task: Task) -> HeldError:
    place = held.holder.place
    return HeldError(
        f"{task.experiment} is running: launch {held.holder.launch}, process {place.pid} on {place.host}, "
        f"last heard {time.time() - held.heard_at:.0f} s ago",
        remedy=f"raykit status; or end that launch: kill -TERM {place.pid}",
    )


def lock(
    site: Site, ready: Prepared, run_log: RunLog, deviation: str | None = None, *, by: str = "launch"
) -> None:
    """Store what the lock binds, and say in the experiment's log that it is locked.

    Raises:
        CancelledError: the experiment was ended for good meanwhile.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    environment = freeze(site.store, ready, git_facts(site, ready))
    locked = Locked(
        plan=ready.lock_sha256,
        contract=digest_of(contract(site.plan)),
        code=ready.code_sha256,
        environment=environment,
        data=ready.data_sha256,
        seen_update=run_log.state.recorded() or None,
        deviation=deviation,
    )
    log = Log(site.store, layout.experiment_log(site.name), ExperimentEntry, by=by)

    def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
        require_running(fold_acts(entries), site.name, ())
        locks = [event for entry in entries for event in entry.events if isinstance(event, Locked)]
        when = {"seen_update": locked.seen_update, "deviation": locked.deviation}
        known = locks[-1].model_copy(update=when) if locks else None
        return [] if known == locked else [locked]

    log.append(decide, at=time.time())
    if site.plan.search is None:
        _record(site, locked)


def _record(site: Site, locked: Locked, setting: Setting | None = None) -> None:
    """Say once what the run is of.

    Raises:
        ConflictError: it is recorded with another setting.
        UnknownOutcomeError: the reply was lost.
        StoreUnavailableError: the store did not answer.
    """
    frozen_as = locked.model_dump(exclude={"event", "seen_update", "deviation", "contract"})
    record = RunRecord(
        experiment=site.name,
        run=site.run,
        contract=digest_of(contract(site.plan)),
        setting=setting,
        **frozen_as,
    )
    key = layout.run_record(site.name, site.run)
    if site.store.head(key) is None:
        site.store.put_new(key, record.to_bytes())
    elif (known := read_setting(site.store, site.name, site.run)) != setting:
        raise ConflictError(f"{key} is of the setting {known}, and not of {setting}")


def _take(log: RunLog, task: Task) -> None:
    """Write `launched`, after the ends of attempts that nobody ended.

    Raises:
        HeldError: another launch was faster, or holds the run.
    """

    def decide(entries: Sequence[RunEntry]) -> list[Record]:
        state = log.state
        if state.launched is not None and state.launched.launch == task.launch:
            return []
        action = _takeable(state, task)
        ends = [AttemptEnded(attempt=a, reason="killed", update=state.recorded()) for a in action.unended]
        claim = Launched(
            launch=task.launch,
            place=this_place(),
            lease_s=task.lease_s,
            raykit=metadata.version("raykit"),
            job=job_here(),
        )
        return [*ends, claim]

    log.append(decide, at=time.time())


# --- amendments ---------------------------------------------------------------------------------------------


def amend(site: Site, *, allows: Exactness, reason: str, person: str) -> list[Difference]:
    """Record that a person lets this run go on with exactly the differences there are now.

    Raises:
        GateError: there is nothing to resume, nothing that the plan does not allow anyway, or the differences leave
            less than `allows`.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    ready = make_ready(site)
    compared = compare_start(
        site.store,
        task_of(site, ready),
        site.plan,
        site.run_log("reader").state,
        facts.expected(site.plan, ready.outside, there=there_are()),
        changed_members(site, ready),
        code=ready.files,
    )
    if compared.good is None:
        raise GateError(f"{site.name} has no checkpoint to resume from", remedy="raykit launch PLAN")
    found, needed = compared.found, site.plan.run.needed
    left = brain.lowest(found)
    if not brain.falls_short(left, needed):
        raise GateError(
            f"this resume is {left} and the plan needs {needed}: nothing has to be allowed",
            field="--as",
            value=allows,
            remedy=f"raykit resume {compared.target}",
        )
    if brain.falls_short(left, allows):
        raise GateError(
            f"what differs leaves {left}, which is less than {allows}",
            field="--as",
            value=allows,
            rule="; ".join(f"{d.what} leaves {d.allows}" for d in found),
            remedy=f"--as {left}, or put back what differs",
        )
    amendment = Amended(run=site.run, allows=allows, reason=reason, differences=difference_digest(found))
    people = Log(site.store, layout.experiment_log(site.name), ExperimentEntry, by=person)
    people.append(lambda entries: [amendment], at=time.time())
    return list(found)
