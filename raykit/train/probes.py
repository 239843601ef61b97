"""Launch gates that run where training will run: on its devices, with its ranks, before its first update.

    gate     proves                                                                   costs
    first    the first batch, its loss, gradients and update are finite, the update   1 update
             has trained something, and the schedule lasts as long as the run
    resume   how exact a resume of this run is here: stopped after two updates,       7 updates, some more forward
             rebuilt from saved bytes, it is compared with two undisturbed twins,     passes, and a second set of
             and so is everything that hangs on it and that no file holds             live objects, made three times

Every run of theirs is in a world of its own: recipe, modules, data and live objects are made anew for it, so that it
neither finds nor leaves anything of another's. What the run itself will train is not touched, and that is proved.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from raykit.data.content import content_digest
from raykit.errors import GateError, PlanError
from raykit.exactness import RESUME_GATE
from raykit.ids import digest_of, sha256
from raykit.plan import Plan
from raykit.reconcile import falls_short
from raykit.records import Exactness, GateResult
from raykit.train import learning
from raykit.train.build import Built, check_dtypes, require_norms
from raykit.train.evaluate import evaluate, monitor
from raykit.train.gang import Gang
from raykit.train.hidden.judge import Moments, judge, snapshot
from raykit.train.hidden.reads import Code
from raykit.train.hidden.walk import Roots
from raykit.train.loader import Keyed, names_of
from raykit.train.looking import looking
from raykit.train.rows import Figures
from raykit.train.schedule import require_steppable, step_through
from raykit.train.state import Capture, hold, restore
from raykit.train.step import Asked, Stepper

UPDATES = 3
"""Length of the resume gate's runs."""

STOP = 2
"""The update after which one of them is stopped: an average, or the second step of anything, is not its first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One run's own recipe, data and live objects."""

    built: Built
    micro_batches: Callable[[int, int], Iterator[Any]]
    """This rank's micro-batches from one update, itself left out, to another."""
    few: Keyed | None
    """The first rows of the development split; None without one."""
    roots: Roots
    """What hangs on all of it."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """What the gates work on."""

    plan: Plan
    gang: Gang
    initial: dict[str, bytes]
    """Every file of the state at update 0, as this rank has it."""
    apart: Callable[[], AbstractContextManager[World]]
    """Makes a world in which nothing has happened yet."""
    harmless: frozenset[str] = frozenset()
    """State outside of checkpoints that does not matter, as the plan and people say."""
    undisturbed: Trace | None = None
    """The run that both gates look at, once it was made."""
    code: Code | None = None
    lost: Lost | None = None
    """What the resume gate found that a resume loses."""


def gate_key(
    gate: str, contract: str, code: str, data: str, facts: dict[str, str], base: str | None = None
) -> str:
    """The digest of all that a gate's result depends on; `base` is the manifest of what the run starts from."""
    return digest_of([gate, contract, code, data, facts, *([] if base is None else [base])])


def first_gate(bench: Bench, key: str) -> GateResult:
    """Look at update 1 and everything that it touched, and at what is left of the schedule.

    Raises:
        GateError: a dtype is not what the plan declares or cannot be computed with, or the schedule does not last as
            long as the run.
    """
    trace = _undisturbed(bench)
    first = trace.first
    assert first is not None
    bad_somewhere = bench.gang.any(bool(first.bad))
    loss = sum(value * weight for _, value, weight, *_ in first.figures.terms)
    found = (
        f"not finite: {', '.join(first.bad) or 'on another rank'}"
        if bad_somewhere
        else f"nothing is trained: {first.idle}"
        if first.idle is not None
        else f"loss {loss:.4g}, gradient norm {first.figures.grad_norm:.4g}, first update finite"
    )
    return GateResult(
        gate="first",
        key=key,
        passed=not bad_somewhere and first.idle is None,
        scope=f"1 update of {bench.plan.run.batch} examples on {bench.gang.world} ranks",
        found="; ".join([found, *([trace.schedule] if trace.schedule else []), *first.said]),
        took_s=round(first.took_s, 3),
    )


def resume_gate(bench: Bench, key: str) -> GateResult:
    """Measure how exact a resume is here, and whether the plan needs more.

    Every run is on objects that are built anew, so that state which no file holds starts anew with them, as it would
    in the process of a real resume.

    Raises:
        GateError: a dtype is not what the plan declares, or update 1, which was finite once, is not now.
    """
    undisturbed = _undisturbed(bench)
    if not undisturbed.middle:
        raise GateError("update 1 is not finite here", rule="as it was when the first gate passed")
    start = time.perf_counter() - undisturbed.took_s
    twin = _run(bench, bench.initial, after=0)
    resumed = _run(bench, undisturbed.middle, after=STOP)
    lost = bench.lost = _lost(bench, undisturbed, twin, resumed)
    exactness, found = _judge(bench, undisturbed, twin, resumed, lost)
    return GateResult(
        gate=RESUME_GATE,
        key=key,
        passed=not falls_short(exactness, bench.plan.run.needed),
        scope=f"{UPDATES} updates, stopped after {STOP}, on {bench.gang.world} ranks",
        found=f"{exactness}: {found}",
        took_s=round(time.perf_counter() - start, 3),
        exactness=exactness,
        cleared=lost.cleared,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Update 1, and what of it is not finite."""

    figures: Figures
    bad: tuple[str, ...]
    idle: str | None
    """Why it trained nothing; None if it did."""
    said: tuple[str, ...]
    """What a person should know of what was built."""
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one run of the gates left behind on this rank."""

    restored: tuple[str, ...]
    """The files that the live objects, right after they were restored, did not give again."""
    first: First | None
    """Of a run that did update 1."""
    middle: dict[str, bytes]
    """Every file of the state where another run is stopped; empty if this one began there."""
    end: dict[str, str]
    """The digests of the same files after the last update."""
    batches: tuple[str | None, ...]
    """The digest of each micro-batch; None where it has no stable bytes."""
    metrics: Mapping[str, float | None]
    """Of a few rows, after the last update."""
    moments: Moments
    schedule: str | None
    """How far the schedule was stepped through, by the run that both gates look at."""
    took_s: float


def _undisturbed(bench: Bench) -> Trace:
    if bench.undisturbed is None:
        bench.undisturbed = _run(bench, bench.initial, after=0)
    return bench.undisturbed


def _run(bench: Bench, files: Mapping[str, bytes], *, after: int) -> Trace:
    """In a world of its own, restore `files`, and do updates `after` + 1 to `UPDATES`."""
    start = time.perf_counter()
    with bench.apart() as world:
        trace = _trained(bench, world, files, after, start)
        bench.code = bench.code or Code.of(world.roots.modules)
    gc.collect()  # what was made goes now: DDP and modules refer to themselves
    return trace


def _trained(bench: Bench, world: World, files: Mapping[str, bytes], after: int, start: float) -> Trace:
    rank, built = bench.gang.rank, world.built
    bench.gang.all_agree(lambda: require_steppable(built.live))
    if bench.gang.device.type == "cpu":
        require_norms(built.live.model)
    restore(built.live, files, rank=rank)
    now = digests(rank, built)
    wrong = tuple(sorted(name for name, data in files.items() if now.get(name) != sha256(data)))
    begun = snapshot(world.roots)
    batches: list[str | None] = []
    stepper = Stepper(bench.plan, built.live.recipe, built, bench.gang)
    micro_batches = _Noted(world.micro_batches(after, UPDATES), batches)
    first: First | None = None
    middle: dict[str, bytes] = {}
    for update in range(after + 1, UPDATES + 1):
        figures, _ = stepper.update(update, micro_batches, Asked(), 0.0)
        if update == 1:
            first = _first(bench, built, figures, start)
            check_dtypes(bench.plan, built.live)
            if bench.gang.any(bool(first.bad)):
                break  # the first gate says so
        if update == STOP:
            _scored(bench, world, update)
            middle = hold(built.live, rank=rank)
    stepped = snapshot(world.roots)
    end = digests(rank, built)
    metrics = _scored(bench, world, UPDATES)
    _monitored(bench, world)
    trained = snapshot(world.roots)
    answer = _asked_again(bench, world, stepper)
    moments = Moments(start=begun, stepped=stepped, end=trained, again=snapshot(world.roots), answer=answer)
    schedule = _schedule(bench, built) if bench.undisturbed is None and middle else None
    return Trace(
        restored=wrong,
        first=first,
        middle=middle,
        end=end,
        batches=tuple(batches),
        metrics=metrics,
        moments=moments,
        schedule=schedule,
        took_s=time.perf_counter() - start,
    )


def _schedule(bench: Bench, built: Built) -> str | None:
    """How far what is left of the schedule goes; the world is used up by that."""
    said: list[str | None] = []
    bench.gang.all_agree(lambda: said.append(step_through(built, bench.plan.run.updates)))
    return said[0]


def _first(bench: Bench, built: Built, figures: Figures, start: float) -> First:
    bad = _not_finite(figures, built)
    idle = None if bench.gang.any(bool(bad)) else learning.idle(built.live, bench.initial, figures)
    return First(figures=figures, bad=bad, idle=idle, said=built.said, took_s=time.perf_counter() - start)


def _not_finite(figures: Figures, built: Built) -> tuple[str, ...]:
    if figures.nonfinite:
        return tuple(figures.nonfinite)
    parameters = built.live.model.named_parameters()
    return tuple(f"parameter {name}" for name, p in parameters if not torch.isfinite(p).all())


class _Noted(Iterator[Any]):
    """Batches whose digests are noted as they are given; who they are of is still known."""

    def __init__(self, batches: Iterator[Any], digests: list[str | None]) -> None:
        self._batches = batches
        self._digests = digests

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._digests.append(content_or_none(batch))
        return batch

    def names(self) -> str:
        """The rows of the batch that was given last."""
        return names_of(self._batches)


def content_or_none(value: Any) -> str | None:
    """The digest of what `value` holds; None if it has no stable bytes."""
    try:
        return content_digest(value)
    except PlanError:
        return None


def _scored(bench: Bench, world: World, update: int) -> Mapping[str, float | None]:
    if world.few is None:
        return {}
    live = world.built.live
    with bench.gang.with_buffers_of_leader(live.model), looking(live.recipe, live.model) as asked:
        return evaluate(bench.plan, asked, world.built, bench.gang, world.few, update).metrics


def _monitored(bench: Bench, world: World) -> None:
    """The cheap monitors, for what they leave on a recipe."""

    def batch() -> Any:
        return next(world.micro_batches(0, 1))

    live = world.built.live
    with looking(live.recipe, live.model) as asked:
        monitor(bench.plan, asked, world.built, bench.gang, batch, UPDATES)


def _asked_again(bench: Bench, world: World, stepper: Stepper) -> str:
    """The digest of the rows through update `STOP` and of their loss, asked for once more; nothing is stepped."""
    batches: list[str | None] = []
    micro_batches = _Noted(world.micro_batches(0, STOP), batches)
    told = [stepper.accumulate(update, micro_batches) for update in range(1, STOP + 1)]
    stepper.clear()
    values = [[[term[0], float(term[1])] for term in terms] for each in told for terms in each]
    return content_digest([batches, values])


def _lost(bench: Bench, undisturbed: Trace, twin: Trace, resumed: Trace) -> Lost:
    """What a resume loses of everything that hangs on the run, over all ranks."""
    assert bench.code is not None
    mine = judge(undisturbed.moments, twin.moments, resumed.moments, bench.code, bench.harmless)
    told = {
        "names": list(mine.names),
        "words": [finding.words for finding in mine.findings],
        "cleared": list(mine.cleared),
    }
    everyone = [bench.gang.share(told, by=rank) for rank in range(bench.gang.world)]

    def all_of(what: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(word for one in everyone for word in one[what]))

    names, cleared = all_of("names"), all_of("cleared")
    return Lost(
        names=names,
        words=all_of("words"),
        cleared=tuple(sorted(set(cleared) - set(names))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a resume loses on some rank, by name and in words; and what was looked at and let through."""

    names: tuple[str, ...]
    words: tuple[str, ...]
    cleared: tuple[str, ...]

    @property
    def hint(self) -> str:
        """What follows another finding."""
        return f"; training changes {self.told}" if self.names else ""

    @property
    def told(self) -> str:
        more = f", and {len(self.names) - MAX_TOLD} more" if len(self.names) > MAX_TOLD else ""
        named = f"{', '.join(self.names[:MAX_TOLD])}{more}, which a resume does not bring back"
        return f"{named}: {'; '.join(self.words[:MAX_TOLD])}"


MAX_TOLD = 6


def _judge(
    bench: Bench, undisturbed: Trace, twin: Trace, resumed: Trace, lost: Lost
) -> tuple[Exactness, str]:
    gang, stop = bench.gang, STOP * bench.plan.run.accumulate
    wrong = sorted({name for trace in (undisturbed, twin, resumed) for name in trace.restored})
    other_data = gang.any(
        (twin.batches, resumed.batches) != (undisturbed.batches, undisturbed.batches[stop:])
    )
    twins_differ = gang.any(_shown(undisturbed) != _shown(twin))
    differs = gang.any(_shown(undisturbed) != _shown(resumed))
    if gang.any(bool(wrong)):
        return (
            "inexact",
            f"what was restored is not what was saved: {', '.join(wrong) or 'a file of another rank'}{lost.hint}",
        )
    if other_data:
        return (
            "inexact",
            "asked again for the same rows, the dataset gave others: it has a generator or state of its own"
            + lost.hint,
        )
    if not differs:
        if lost.names:
            return (
                "order-exact",
                f"training changes {lost.told}. After {UPDATES} updates the weights are still equal; "
                "later ones need not be",
            )
        return "exact", "after a stop and a rebuild from saved bytes, every tensor and generator is equal"
    if twins_differ:
        return (
            "state-exact",
            f"two undisturbed runs differ here too, in {_between(undisturbed, twin)}; "
            f"what is restored is equal{lost.hint}",
        )
    said = "; run.harmless covers state, and not what is trained or scored by it" if bench.harmless else ""
    return (
        "inexact",
        f"undisturbed runs agree, the resumed one differs in {_between(undisturbed, resumed)}{lost.hint or said}",
    )


def _between(one: Trace, other: Trace) -> str:
    """What two runs differ in, as this rank has it."""
    names = sorted(name for name in one.end if one.end[name] != other.end.get(name))
    if not names:
        names = [
            f"development {name}" for name, value in one.metrics.items() if other.metrics.get(name) != value
        ]
    if not names and one.moments.answer != other.moments.answer:
        names = [f"the loss of the rows of updates 1 to {STOP}, asked for once more"]
    return ", ".join(names) or "another rank"


def _shown(trace: Trace) -> tuple[Any, ...]:
    return trace.end, trace.metrics, trace.moments.answer


def require_untouched(built: Built, initial: Mapping[str, bytes], gang: Gang) -> None:
    """Prove that what will be trained is as it was before the gates.

    Raises:
        GateError: it is not.
    """
    now = digests(gang.rank, built)
    wrong = sorted(name for name, digest in now.items() if digest != sha256(initial[name]))
    if gang.any(bool(wrong)):
        raise GateError(
            f"the gates have changed {', '.join(wrong) or 'a file of another rank'} of the run that they stand before",
            rule="a recipe that is made anew shares nothing with another",
            remedy="keep nothing of a run in other packages: give the recipe a state_dict() for state of its own",
        )


def digests(rank: int, built: Built) -> dict[str, str]:
    """The digests of those files."""
    capture = Capture(rank=rank, pin=False, whole=True)
    capture.take(built.live)
    return capture.digests()
