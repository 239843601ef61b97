"""Ask again: lock a plan anew for a run that was trained, so that checks run with the QC and code of today.

Nothing is trained, and nothing of what was trained may differ. The receipts of the suite before stay where they are,
and no decision rests on them any more: every reader takes the suite of the newest lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raykit.errors import ApprovalError, GateError
from raykit.fleet.claim import lock, require_free, reviewed
from raykit.fleet.site import Site, make_ready, task_of
from raykit.ids import Digest
from raykit.pauses import InForce, in_force, require_running, scopes_of
from raykit.plan import Lock, contract, differences
from raykit.records import AttemptStarted, Difference
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.plans import read_plan
from raykit.store.qc import Examinations
from raykit.train import frozen
from raykit.train.owncode import code_differences
from raykit.train.prepare import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocked:
    """What is asked of every checkpoint from now on, and how that differs from before."""

    experiment: str
    new: bool
    """False: the plan and code ask what is asked already, and nothing was written."""
    was: Digest | None
    """The suite before; None if the plan had no `[qc]`."""
    suite: Digest
    changed: Mapping[str, tuple[object, object]]
    """Every setting of the plan that differs from the lock before."""
    code: tuple[Difference, ...]
    """The files of the recipe that differ from what the run was trained with."""
    receipts: int
    """How many receipts the suite before has: they stay, and decide nothing any more."""
    was_paused: InForce | None
    """What the suite before is paused for: it does not hold for another one."""
    paused: InForce | None
    """What keeps workers from examining all the same."""
    complete: bool
    """The run has trained to its end."""


def relock(
    site: Site,
    *,
    person: str,
    deviation: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Relocked:
    """Lock a plan anew for its run, without training, if it asks something else of a checkpoint than before.

    `deviation` are the words of a person, needed once there are results. A rule that decides stays as it was, as for a
    launch; a threshold on a metric that nothing has ever reported may be moved to the name that was meant.

    Raises:
        CancelledError: the experiment was ended for good.
        ApprovalError: results were seen, and nobody says why the checks are asked anew.
        GateError: the plan has no [qc], nothing was trained, or what was trained would be something else.
        ReviewError: a rule that decides has changed, or the plan needs revision.
        HeldError: a launch that is alive holds the run.
        PlanError: the recipe, its params, data or splits are not usable, or the plan leaves something unsaid.
        ConflictError: a key holds other bytes.
        CorruptError: stored bytes do not match their digests.
        UnknownOutcomeError: a reply was lost and could not be read back; the same command goes on.
        StoreUnavailableError: the store did not answer.
    """
    log = site.run_log(person)
    acts = read_acts(site.store, site.name)
    require_running(acts, site.name, ())
    attempt = _require_run(site, log)
    ready = make_ready(site)
    _require_same_training(site, ready, attempt)
    task = task_of(site, ready)
    require_free(log.state, task)
    found = _compare(site, ready, attempt, log)
    if found.new:
        _require_words(site, log, found, deviation)
        ready = reviewed(site, ready, log, None, deviation, say)
        log.refresh()
        require_free(log.state, task)  # once more, as late as can be: the review takes a while
        lock(site, ready, log, deviation, by=person)
    return found


def _require_run(site: Site, log: RunLog) -> AttemptStarted:
    """The newest attempt: what is examined was trained under its plan."""
    if site.plan.qc is None:
        raise GateError(
            f"the plan of {site.name} has no [qc]: nothing of it has to be examined",
            field="qc",
            rule="a table [qc]: owner, every, roster, fail, on_failure",
        )
    attempt = log.state.attempt
    if attempt is None:
        raise GateError(
            f"nothing of {site.name} was trained yet: there is nothing to ask again",
            field="name",
            value=site.name,
            remedy="raykit launch PLAN",
        )
    return attempt


def _require_same_training(site: Site, ready: Prepared, attempt: AttemptStarted) -> None:
    """Let only a plan pass that would train what was trained; its code is for people to see, and for a resume."""
    require_same_plan(site, attempt)
    if ready.data_sha256 != attempt.data:
        raise _another_plan(site, [("split members", f"{attempt.data[:12]} -> {ready.data_sha256[:12]}")])


def require_same_plan(site: Site, attempt: AttemptStarted) -> None:
    """Let only a plan pass whose settings would train what an attempt has trained.

    Raises:
        GateError: they would train something else; the message names each field.
        CorruptError: the stored plan does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    was = contract(read_plan(site.store, site.name, attempt.plan))
    changed = [(field, f"{old} -> {new}") for field, old, new in differences(was, contract(site.plan))]
    if changed:
        raise _another_plan(site, changed)


def _another_plan(site: Site, changed: Sequence[tuple[str, str]]) -> GateError:
    named = "; ".join(f"{field}: {what}" for field, what in changed[:5])
    return GateError(
        f"{site.name} was trained under another plan: {named}",
        field=changed[0][0],
        value=changed[0][1],
        rule="only what is asked of a checkpoint may change; what was trained stays what it was",
        remedy="put it back as it was, or give the new plan a name of its own",
    )


def _compare(site: Site, ready: Prepared, attempt: AttemptStarted, log: RunLog) -> Relocked:
    before, suite = _locked(site), ready.lock.suite
    assert suite is not None, "the plan has [qc]"
    was = read_plan(site.store, site.name, before.digest)
    changed = {key: (old, new) for key, old, new in differences(was.plain(), site.plan.plain())}
    said = Examinations(site.store, site.name).said().values()
    acts = read_acts(site.store, site.name)
    return Relocked(
        experiment=site.name,
        # limits of workers are no part of a suite, and a run that is complete has no other way to new ones
        new=suite != before.suite or any(key.startswith("qc.") for key in changed),
        was=before.suite,
        suite=suite,
        changed=changed,
        code=tuple(
            code_differences(
                site.plan.recipe, frozen.read_code(site.store, site.name, attempt.code), ready.files
            )
        ),
        receipts=sum(each.receipt is not None and each.receipt.suite == before.suite for each in said),
        was_paused=acts.pauses.get(f"contract:{before.suite}"),
        paused=in_force(acts, scopes_of(site.name, "qc", suite)),
        complete=log.state.completed,
    )


def _locked(site: Site) -> Lock:
    assert site.locked is not None, "an attempt starts under a lock"
    return site.locked


def _require_words(site: Site, log: RunLog, found: Relocked, deviation: str | None) -> None:
    """Whoever asks again after results were seen says why; it is kept."""
    update = log.state.recorded()
    if deviation is None and (update or found.receipts):
        raise ApprovalError(
            f"results of {site.name} were seen (update {update:,}, {found.receipts} receipts): another suite is a "
            "deviation, and nobody says why",
            field="--deviation",
            rule="what a person says about it: it is kept, with what had been seen",
            remedy='raykit qc relock PLAN --deviation "what was wrong" --by NAME',
        )


__all__ = ["Relocked", "relock"]
