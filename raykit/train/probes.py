"""Launch gates that run where training will run: on its devices, with its ranks, before its first update.

    gate     proves                                                                   costs
    first    the first batch, its loss, gradients and update are finite, and the      1 update
             update has trained something
    resume   how exact a resume of this run is here: stopped after one update,        8 updates and a second set of
             rebuilt from saved bytes, it is compared with two undisturbed twins      live objects, made three times

Both leave the live objects as they found them, to the bit, and say so by digest.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from raykit.errors import GateError
from raykit.ids import digest_of, sha256
from raykit.plan import Plan
from raykit.reconcile import falls_short
from raykit.records import Exactness, GateResult
from raykit.train import learning
from raykit.train.build import Built, check_dtypes, require_norms
from raykit.train.gang import Gang
from raykit.train.schedule import step_through
from raykit.train.state import Capture, hold, restore
from raykit.train.step import Asked, Stepper
from raykit.train.unsaved import content_or_none, unsaved

UPDATES = 3
"""Length of the resume gate's runs: one update, then a stop, then two more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the gates work on. `micro_batches(after)` gives this rank's micro-batches from update `after` + 1."""

    plan: Plan
    gang: Gang
    built: Built
    initial: dict[str, bytes]
    """Every file of the state at update 0, as this rank has it."""
    rebuild: Callable[[], Built]
    """Makes everything once more, with a recipe that has made nothing yet."""
    micro_batches: Callable[[int], Iterator[Any]]


def gate_key(
    gate: str, contract: str, code: str, data: str, facts: dict[str, str], base: str | None = None
) -> str:
    """The digest of all that a gate's result depends on; `base` is the manifest of what the run starts from."""
    return digest_of([gate, contract, code, data, facts, *([] if base is None else [base])])


def first_gate(bench: Bench, key: str) -> GateResult:
    """Do update 1 and look at everything it touched; then put everything back.

    The schedule is stepped through first, on objects that are built for it.

    Raises:
        GateError: a dtype is not what the plan declares or cannot be computed with, or the schedule does not last as
            long as the run.
    """
    start = time.perf_counter()
    live = bench.built.live
    if bench.gang.device.type == "cpu":
        require_norms(live.model)
    schedule = _schedule(bench)
    stepper = Stepper(bench.plan, live.recipe, bench.built, bench.gang)
    figures, _ = stepper.update(1, bench.micro_batches(0), Asked(), 0.0)
    bad = list(figures.nonfinite)
    if not bad:
        bad = [
            f"parameter {name}" for name, p in live.model.named_parameters() if not torch.isfinite(p).all()
        ]
    bad_somewhere = bench.gang.any(bool(bad))
    idle = None if bad_somewhere else learning.idle(live, bench.initial, figures)
    check_dtypes(bench.plan, live)
    put_back(bench)
    loss = sum(value * weight for _, value, weight, *_ in figures.terms)
    found = (
        f"not finite: {', '.join(bad) or 'on another rank'}"
        if bad_somewhere
        else f"nothing is trained: {idle}"
        if idle is not None
        else f"loss {loss:.4g}, gradient norm {figures.grad_norm:.4g}, first update finite"
    )
    found = "; ".join([found, *schedule, *bench.built.said])
    return GateResult(
        gate="first",
        key=key,
        passed=not bad_somewhere and idle is None,
        scope=f"1 update of {bench.plan.run.batch} examples on {bench.gang.world} ranks",
        found=found,
        took_s=round(time.perf_counter() - start, 3),
    )


def _schedule(bench: Bench) -> list[str]:
    said: list[str | None] = []
    built = bench.rebuild()
    bench.gang.all_agree(lambda: said.append(step_through(built, bench.plan.run.updates)))
    return [each for each in said if each is not None]


def resume_gate(bench: Bench, key: str) -> GateResult:
    """Measure how exact a resume is here, and whether the plan needs more.

    Every run is on objects that are built anew, so that state which no file holds starts anew with them, as it would
    in the process of a real resume.
    """
    start = time.perf_counter()
    undisturbed = _run(bench, bench.initial, after=0)
    twin = _run(bench, bench.initial, after=0)
    resumed = _run(bench, undisturbed.middle, after=1)
    exactness, found = _judge(bench, undisturbed, twin, resumed)
    return GateResult(
        gate="resume",
        key=key,
        passed=not falls_short(exactness, bench.plan.run.needed),
        scope=f"{UPDATES} updates, stopped after 1, on {bench.gang.world} ranks",
        found=f"{exactness}: {found}",
        took_s=round(time.perf_counter() - start, 3),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trace:
    """What one run of the resume gate left behind on this rank."""

    restored: bool
    """Whether the live objects, right after they were restored, gave the same bytes again."""
    middle: dict[str, bytes]
    """Every file of the state after update 1; empty if the run began there."""
    end: dict[str, str]
    """The digests of the same files after the last update."""
    batches: tuple[str | None, ...]
    """The digest of each micro-batch; None where it has no stable bytes."""
    unsaved: tuple[str, ...]
    """Attributes that changed and that no state_dict holds."""


def _run(bench: Bench, files: Mapping[str, bytes], *, after: int) -> _Trace:
    """Build anew, restore `files`, and do updates `after` + 1 to `UPDATES`."""
    if bench.gang.device.type != "cpu":
        gc.collect()  # the objects of the run before go now: DDP refers to itself
    rank, built = bench.gang.rank, bench.rebuild()
    restore(built.live, files, rank=rank)
    restored = digests(rank, built) == {name: sha256(data) for name, data in files.items()}
    before = unsaved(built.live)
    batches: list[str | None] = []
    stepper = Stepper(bench.plan, built.live.recipe, built, bench.gang)
    micro_batches = _noted(bench.micro_batches(after), batches)
    middle: dict[str, bytes] = {}
    for update in range(after + 1, UPDATES + 1):
        stepper.update(update, micro_batches, Asked(), 0.0)
        if update == 1:
            middle = hold(built.live, rank=rank)
    changed = unsaved(built.live)
    return _Trace(
        restored=restored,
        middle=middle,
        end=digests(rank, built),
        batches=tuple(batches),
        unsaved=tuple(sorted(name for name, value in changed.items() if before.get(name) != value)),
    )


def _noted(micro_batches: Iterator[Any], digests: list[str | None]) -> Iterator[Any]:
    for batch in micro_batches:
        digests.append(content_or_none(batch))
        yield batch


def _judge(bench: Bench, undisturbed: _Trace, twin: _Trace, resumed: _Trace) -> tuple[Exactness, str]:
    gang, first = bench.gang, bench.plan.run.accumulate
    lost = gang.any(not (undisturbed.restored and twin.restored and resumed.restored))
    other_data = gang.any(
        (twin.batches, resumed.batches) != (undisturbed.batches, undisturbed.batches[first:])
    )
    twins_differ = gang.any(undisturbed.end != twin.end)
    differs = gang.any(undisturbed.end != resumed.end)
    if lost:
        return "inexact", f"what was restored is not what was saved{_hint(undisturbed)}"
    if other_data:
        return (
            "inexact",
            "asked again for the same rows, the dataset gave others: it has a generator or state of its own",
        )
    if not differs:
        return "exact", "after a stop and a rebuild from saved bytes, every tensor and generator is equal"
    if twins_differ:
        return (
            "state-exact",
            f"two undisturbed runs differ here too; what is restored is equal{_hint(undisturbed)}",
        )
    names = sorted(name for name in undisturbed.end if undisturbed.end[name] != resumed.end.get(name))
    return (
        "inexact",
        f"undisturbed runs agree, the resumed one differs in {', '.join(names) or 'another rank'}{_hint(undisturbed)}",
    )


def _hint(trace: _Trace) -> str:
    if not trace.unsaved:
        return ""
    return f"; training changes {', '.join(trace.unsaved)}, which no state_dict holds"


def put_back(bench: Bench) -> None:
    """Restore update 0, and prove it.

    Raises:
        GateError: the state of the live objects is not what it was.
    """
    restore(bench.built.live, bench.initial, rank=bench.gang.rank)
    now = digests(bench.gang.rank, bench.built)
    wrong = sorted(name for name, digest in now.items() if digest != sha256(bench.initial[name]))
    if bench.gang.any(bool(wrong)):
        raise GateError(
            f"the state could not be put back: {', '.join(wrong) or 'on another rank'} differs",
            rule="what is saved is all there is",
            remedy="give the recipe a state_dict() and load_state_dict() for state of its own",
        )


def digests(rank: int, built: Built) -> dict[str, str]:
    """The digests of those files."""
    capture = Capture(rank=rank, pin=False, whole=True)
    capture.take(built.live)
    return capture.digests()
