"""Launch gates that run where training will run: on its devices, with its ranks, before its first update.

    gate     proves                                                                   costs
    first    the first batch, its loss, gradients and update are finite               1 update
    resume   how exact a resume of this run is here: stopped after one update,        8 updates and a second
             rebuilt from saved bytes, it is compared with two undisturbed twins      set of live objects

Both leave the live objects as they found them, to the bit, and say so by digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from raykit.errors import GateError
from raykit.ids import digest_of, sha256
from raykit.plan import Plan
from raykit.reconcile import falls_short
from raykit.records import Exactness, GateResult
from raykit.train.build import Built, check_dtypes
from raykit.train.gang import Gang
from raykit.train.recipe import Recipe
from raykit.train.state import Capture, restore
from raykit.train.step import Asked, Stepper, nonfinite

UPDATES = 3
"""Length of the resume gate's runs: one update, then a stop, then two more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the gates work on. `micro_batches(after)` gives this rank's micro-batches from update `after` + 1."""

    plan: Plan
    recipe: Recipe
    gang: Gang
    built: Built
    initial: dict[str, bytes]
    """Every file of the state at update 0, as this rank has it."""
    rebuild: Callable[[], Built]
    micro_batches: Callable[[int], Iterator[Any]]


def gate_key(gate: str, contract: str, code: str, data: str, facts: dict[str, str]) -> str:
    """The digest of all that a gate's result depends on."""
    return digest_of([gate, contract, code, data, facts])


def first_gate(bench: Bench, key: str) -> GateResult:
    """Do update 1 and look at everything it touched; then put everything back.

    Raises:
        GateError: a dtype is not what the plan declares.
    """
    start = time.perf_counter()
    live = bench.built.live
    stepper = Stepper(bench.plan, bench.recipe, bench.built, bench.gang)
    figures, _ = stepper.update(1, bench.micro_batches(0), Asked(), 0.0)
    bad = list(nonfinite(figures))
    if not bad:
        bad = [
            f"parameter {name}" for name, p in live.model.named_parameters() if not torch.isfinite(p).all()
        ]
    bad_somewhere = bench.gang.any(bool(bad))
    check_dtypes(bench.plan, live)
    put_back(bench)
    loss = sum(value * weight for _, value, weight, *_ in figures.terms)
    found = (
        f"not finite: {', '.join(bad) or 'on another rank'}"
        if bad_somewhere
        else f"loss {loss:.4g}, gradient norm {figures.grad_norm:.4g}, first update finite"
    )
    return GateResult(
        gate="first",
        key=key,
        passed=not bad_somewhere,
        scope=f"1 update of {bench.plan.run.batch} examples on {bench.gang.world} ranks",
        found=found,
        took_s=round(time.perf_counter() - start, 3),
    )


def resume_gate(bench: Bench, key: str) -> GateResult:
    """Measure how exact a resume is here, and whether the plan needs more.

    Raises:
        GateError: the live objects could not be put back to the bit.
    """
    start = time.perf_counter()
    middle, undisturbed = _run(bench, bench.built, 0, keep_at=1)
    put_back(bench)
    _, twin = _run(bench, bench.built, 0, keep_at=None)
    put_back(bench)
    again = bench.rebuild()
    restore(again.live, middle, rank=bench.gang.rank)
    restored = digests(bench.gang.rank, again) == {name: sha256(data) for name, data in middle.items()}
    _, resumed = _run(bench, again, 1, keep_at=None)
    exactness, found = _judge(bench.gang, restored, undisturbed, twin, resumed)
    return GateResult(
        gate="resume",
        key=key,
        passed=not falls_short(exactness, bench.plan.run.needed),
        scope=f"{UPDATES} updates, stopped after 1, on {bench.gang.world} ranks",
        found=f"{exactness}: {found}",
        took_s=round(time.perf_counter() - start, 3),
    )


def _judge(
    gang: Gang, restored: bool, undisturbed: dict[str, str], twin: dict[str, str], resumed: dict[str, str]
) -> tuple[Exactness, str]:
    lost = gang.any(not restored)
    twins_differ = gang.any(undisturbed != twin)
    differs = gang.any(undisturbed != resumed)
    if lost:
        return "inexact", "what was restored is not what was saved"
    if not differs:
        return "exact", "after a stop and a rebuild from saved bytes, every tensor and generator is equal"
    if twins_differ:
        return "state-exact", "two undisturbed runs differ here too; what is restored is equal"
    names = sorted(name for name in undisturbed if undisturbed[name] != resumed.get(name))
    return (
        "inexact",
        f"undisturbed runs agree, the resumed one differs in {', '.join(names) or 'another rank'}",
    )


def _run(
    bench: Bench, built: Built, after: int, *, keep_at: int | None
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Updates `after` + 1 to `UPDATES`; the files held at `keep_at`, and the digests at the end."""
    stepper = Stepper(bench.plan, bench.recipe, built, bench.gang)
    micro_batches = bench.micro_batches(after)
    kept: dict[str, bytes] = {}
    for update in range(after + 1, UPDATES + 1):
        stepper.update(update, micro_batches, Asked(), 0.0)
        if update == keep_at:
            kept = hold(bench.gang.rank, built)
    return kept, digests(bench.gang.rank, built)


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


def hold(rank: int, built: Built) -> dict[str, bytes]:
    """The whole state as files in memory."""
    capture = Capture(rank=rank, pin=False, whole=True)
    capture.take(built.live)
    return capture.held()


def digests(rank: int, built: Built) -> dict[str, str]:
    """The digests of those files."""
    capture = Capture(rank=rank, pin=False, whole=True)
    capture.take(built.live)
    return capture.digests()
