"""The facts of an experiment's ledger as lines of text: what it is made of, and what it came to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raykit.budget.amounts import shown
from raykit.cli import look, output
from raykit.train.revision import CUT, UNTRACKED

if TYPE_CHECKING:
    from raykit.plan import LockedBase
    from raykit.read.dossier import Dossier, Job, Said, SourceRows
    from raykit.read.dossier.frozen import Members, RoleMembers, Runtime
    from raykit.read.dossier.outlay import Took
    from raykit.records import Unit

UNKNOWN = "not known"
LISTED = 20
FACTS = ("torch", "torch_build", "device", "device_model", "world_size", "threads")
Facts = Iterator[tuple[str, str]]


def unit_of(dossier: Dossier) -> Unit:
    """The unit that its amounts are in."""
    return dossier.money.unit if dossier.money is not None else "usd"


# --- what it is made of -------------------------------------------------------------------------------------


def made_of(dossier: Dossier) -> Facts:
    """Source, split, base, model, runtime and frozen inputs, each with its digest."""
    frozen = dossier.frozen
    yield "active", f"{dossier.active.answer}: {dossier.active.why}"
    yield from (("sources", _source(source)) for source in dossier.sources)
    for members in frozen.members[-1:]:
        yield "divided", _policy(members)
        yield "members", f"{output.short(members.digest)}: {_roles(members.roles)}"
        yield "", f"exact contents in two roles: {_overlaps(members)}"
    yield "base", _base(dossier)
    yield from (("candidates", _candidate(said)) for said in dossier.candidates)
    for code in frozen.code[-1:]:
        files = UNKNOWN if code.files is None else look.many(len(code.files), "file")
        yield "model", f"{code.recipe or 'recipe ' + UNKNOWN}, code {output.short(code.digest)}: {files}"
    for runtime in frozen.runtimes[-1:]:
        yield from (("runtime", text) for text in _runtime(runtime))
    if facts := _newest_facts(dossier.jobs):
        yield "runtime", facts
    yield "inputs", _inputs(dossier)


def _source(source: SourceRows) -> str:
    rows = f"rows {UNKNOWN}" if source.rows is None else look.many(source.rows, "row")
    digest = f"checksum {UNKNOWN}" if source.digest is None else output.short(source.digest)
    role = "" if source.role == "all" else f"{source.role} "
    return f"{role}{output.clean(source.source)}: {rows}, {digest} ({output.clean(source.how)})"


def _policy(members: Members) -> str:
    policy = members.policy
    if policy is None:
        return UNKNOWN
    fractions = policy.get("fractions")
    shares = UNKNOWN
    if fractions:
        shares = ", ".join(f"{e.role} {fractions[e.role]:g}" for e in members.roles if e.role in fractions)
    return f"{shares}; kept together: {policy.get('group', UNKNOWN)}; seed {policy.get('seed', UNKNOWN)}"


def _roles(roles: Sequence[RoleMembers]) -> str:
    return f" {output.DOT} ".join(
        f"{each.role} {UNKNOWN if each.rows is None else output.count(each.rows)}"
        f" ({UNKNOWN if each.members is None else output.short(each.members)})"
        for each in roles
    )


def _overlaps(members: Members) -> str:
    if members.overlaps is None:
        return UNKNOWN
    return (
        "; ".join(f"{' and '.join(each['roles'])} {each['contents']:,}" for each in members.overlaps)
        or "none, of those that were compared"
    )


def _base(dossier: Dossier) -> str:
    lock = dossier.frozen.lock
    if lock is None:
        return UNKNOWN
    if lock.base is not None:
        held = "" if dossier.base is None else f", {dossier.base.held}"
        return f"{_weights(lock.base)}{held}"
    weighed = lock.judged.base if lock.judged is not None else None
    return "none: trained from the start" + (f"; weighed {_weights(weighed)}" if weighed else "")


def _weights(base: LockedBase) -> str:
    origin = f"run {base.experiment}" if base.origin == "run" else "adopted, its history is absent"
    manifest = output.short(base.manifest)
    return f"{base.candidate} at update {output.count(base.update)}, manifest {manifest}, {origin}"


def _candidate(said: Said) -> str:
    given = said.event.plain()
    time_ms, cost = given.get("accelerator_ms"), given.get("cost")
    invested = UNKNOWN if time_ms is None else f"{time_ms / 3_600_000:,.4g} accelerator-hours"
    money = UNKNOWN if cost is None else shown(cost)
    manifest = output.short(given["manifest"])
    return (
        f"{given['candidate']} ({given['role']}), update {output.count(given.get('update', 0))}, manifest {manifest}, "
        f"invested {invested}, cost {money}, by {output.clean(given['person'])}{_stands(said, 'corrected since')}"
    )


def _runtime(runtime: Runtime) -> Iterator[str]:
    record = runtime.record
    if record is None:
        yield f"environment {output.short(runtime.digest)}: {UNKNOWN}"
        return
    packages = record.get("packages")
    count = UNKNOWN if packages is None else look.many(len(packages), "package")
    yield (
        f"environment {output.short(runtime.digest)}: python {record.get('python', UNKNOWN)}, {count}, "
        f"image {record.get('image') or 'none'}"
    )
    yield f"git {_git(record)}"
    memory = record.get("memory_bytes")
    size = UNKNOWN if memory is None else output.size(memory)
    yield f"{record.get('cpu_count', UNKNOWN)} x {record.get('cpu_model', UNKNOWN)}, memory {size}"


def _git(record: Mapping[str, Any]) -> str:
    """The revision, and in what the frozen files differ from it."""
    revision, dirty = record.get("git_revision"), record.get("git_dirty")
    if revision is None:
        return "revision " + UNKNOWN
    if not dirty:
        more = "no difference found" if dirty is False else f"what differs is {UNKNOWN}"
        return f"{output.short(revision)}, {more}"
    diff = record.get("git_diff") or ""
    lines = diff.splitlines()
    untracked = [line.removeprefix(UNTRACKED) for line in lines if line.startswith(UNTRACKED)]
    kept = "kept in part" if lines and lines[-1].startswith(CUT) else "kept"
    found = f"{output.short(revision)} + a difference of {output.size(len(diff.encode()))} ({kept})"
    if not untracked:
        return found
    names = ", ".join(output.clean(name) for name in untracked[:LISTED])
    return f"{found}, in which git does not track {look.many(len(untracked), 'file')}: {names}"


def _newest_facts(jobs: Sequence[Job]) -> str | None:
    facts = next((a.facts for job in reversed(jobs) for a in reversed(job.attempts)), None)
    if facts is None:
        return None
    return ", ".join(f"{name} {facts[name]}" for name in FACTS if name in facts)


def _inputs(dossier: Dossier) -> str:
    counts: dict[str, int] = {}
    for item in dossier.frozen.inputs:
        counts[item.held] = counts.get(item.held, 0) + 1
    words = {
        "verified": "match their digests",
        "there": "there by size, not read",
        "missing": "MISSING",
        "changed": "CHANGED",
    }
    return f"{len(dossier.frozen.inputs)} frozen: " + (
        ", ".join(f"{counts[held]} {text}" for held, text in words.items() if held in counts) or "nothing"
    )


# --- what it came to ----------------------------------------------------------------------------------------


def came_to(dossier: Dossier) -> Facts:
    """Gates, checkpoints, money projected and actual, what was learned, the comparison and the review."""
    passed = sum(gate.result.passed for gate in dossier.gates)
    yield (
        "gates",
        f"{look.many(len(dossier.gates), 'result')}: {passed} passed, {len(dossier.gates) - passed} failed",
    )
    for gate in dossier.gates:
        if not gate.result.passed:
            when = f"failed after attempt {gate.after_attempt}"
            yield "", f"{_of(dossier, gate.run)}{gate.result.gate} {when}: {output.clean(gate.result.found)}"
    yield "checkpoints", _checkpoints(dossier)
    for gone in dossier.superseded:
        span, why = look.span(gone.superseded), output.clean(gone.superseded.why)
        yield "superseded", f"{_of(dossier, gone.run)}{span}, kept as cost: {why}"
    yield from (("projected", text) for text in _outlay(dossier))
    yield from (("sizing", _measured(said)) for said in dossier.learned.measured)
    yield from (("diagnosis", text) for text in _diagnosis(dossier))
    yield from (("concluded", _concluded(said)) for said in dossier.learned.concluded)
    yield from (("noted", _noted(said)) for said in dossier.learned.noted)
    yield "comparison", _comparison(dossier)
    yield from (("review", text) for text in _review(dossier))


def _of(dossier: Dossier, run: str) -> str:
    """Which run something is of, where there are several."""
    return f"{run}: " if dossier.of_search and dossier.view is None else ""


def _checkpoints(dossier: Dossier) -> str:
    found = look.many(len(dossier.checkpoints), "checkpoint")
    chosen = [each for each in dossier.checkpoints if each.selected]
    if dossier.of_search and dossier.view is None:
        trials = look.many(len({each.run for each in dossier.checkpoints}), "trial")
        return f"{found} of {trials}, {len(chosen):,} selected: those that the values of rows are from"
    selected = chosen[0] if chosen else None
    if selected is None:
        return f"{found}, none selected"
    commit = selected.commit
    files = f"files {UNKNOWN}" if selected.files is None else look.many(len(selected.files), "file")
    manifest = output.short(commit.sha256)
    return f"{found}; selected: update {output.count(commit.update)}, manifest {manifest}, {files}"


def _outlay(dossier: Dossier) -> Iterator[str]:
    outlay, unit = dossier.outlay, unit_of(dossier)
    if outlay is None:
        yield f"{UNKNOWN}: it has no budget here"
        return
    guess = " (a guess: nothing compatible was measured)" if outlay.uncertain else ""
    yield f"at launch  {_took(outlay.projected, unit, 'wall')}{guess}"
    # Of several jobs beside each other what they held together is more than went by on a clock.
    yield f"actually   {_took(outlay.actual, unit, 'held')}"


def _took(took: Took, unit: Unit, clock: str) -> str:
    hours, held = f"accelerator-hours {UNKNOWN}", UNKNOWN
    if took.wall_ms is not None:
        held = output.duration(took.wall_ms / 1000)
    if took.accelerator_ms is not None:
        hours = f"{took.accelerator_ms / 3_600_000:,.4g} accelerator-hours"
    return f"cost {shown(took.cost, unit)}, {clock} {held}, {hours}"


def _measured(said: Said) -> str:
    given = said.event.plain()
    memory = given.get("memory_bytes") or {}
    terms = ", ".join(f"{name} {output.size(size)}" for name, size in memory.items())
    took = f"{output.duration(given['time_ms'] / 1000)} for {output.count(given.get('units', 1))}"
    found = f"{given['what']} on {given['pool']}: {terms or took} ({output.clean(given['how'])})"
    return found + _stands(said, "measured again since")


def _diagnosis(dossier: Dossier) -> Iterator[str]:
    found = dossier.diagnosed
    if found is None:
        return
    for said in found.branches:
        given = said.event.plain()
        removed = ", ".join(given["removed"]) or "none"
        script = " (scripted)" if given.get("scripted") else ""
        saw, following = output.clean(given["saw"]), output.clean(given["next"])
        yield f"{given['test']}: saw {saw}; removed {removed}; next {following}{script}"
        if given.get("predicts"):
            yield f"  predicted before: {_predictions(given)}"
    yield f"not removed: {', '.join(found.left) or 'none'}; that shows none of them to be true"
    waiting = [test.test for test in found.tests if not test.runs]
    if waiting:
        yield f"not run: {', '.join(waiting)}"


def _predictions(given: Mapping[str, Any]) -> str:
    """What each hypothesis had predicted of a test, and what it would have led to."""
    branches = given.get("next_by", {})
    return "; ".join(
        output.clean(f"{name}: {text!r}" + (f" -> {branches[name]}" if name in branches else ""))
        for name, text in given["predicts"].items()
    )


def _concluded(said: Said) -> str:
    given = said.event.plain()
    parts = [given["outcome"], output.clean(given["says"])]
    if given.get("hypothesis"):
        parts.append(f"of: {output.clean(given['hypothesis'])}")
    if given.get("effect"):
        parts.append(output.clean(given["effect"]))
    script = " (scripted)" if given.get("scripted") else ""
    by = f"at update {given['update']:,}, by {output.clean(given['person'])}{script}"
    return f"{'; '.join(parts)}; {by}{_stands(said, 'superseded by a later conclusion')}"


def _stands(said: Said, otherwise: str) -> str:
    """What is added to something that does not count any more."""
    return f": {otherwise}" if said.superseded else ""


def _noted(said: Said) -> str:
    given = said.event.plain()
    return f"{given['kind']}: {output.clean(given['says'])}, by {output.clean(given['person'])}"


def _comparison(dossier: Dossier) -> str:
    comparison = dossier.plain()["comparison"]
    arms = f"; the plan binds {', '.join(comparison['arms'])}" if comparison["arms"] else ""
    return f"{comparison['says']}{arms}"


def _review(dossier: Dossier) -> Iterator[str]:
    judged = dossier.judged
    if judged is None:
        yield f"{UNKNOWN}: its lock keeps none"
        return
    yield f"{judged.stage} ({output.clean(judged.stage_why)}), {look.many(len(judged.passed), 'item')} passed"
    yield f"looked at: {output.clean(judged.looked.words)}"
    for run in judged.looked.runs[:LISTED]:
        outcome = "" if run.outcome is None else f", {output.clean(run.outcome)}"
        yield f"  {run.experiment}: {run.state} at {run.update:,} of {run.updates:,}{outcome}"
    if judged.looked.unread:
        yield f"could not be read: {', '.join(judged.looked.unread)}"
    yield from (f"limitation: {output.clean(text)}" for text in judged.limitations)
