"""Which part of a run is replayed, what that may cost, and why none was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from raykit import replays
from raykit.exactness import words_of
from raykit.plan import Plan, load_plan
from raykit.reconcile import RunState
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Commit,
    Compared,
    Exactness,
    FirstDifference,
    GateResult,
    Place,
    ResumeReceipt,
    Row,
    TermRow,
    Unreplayed,
)
from raykit.replays import Span, span_of, why_not_replayed, within_share
from raykit.train.overlap import difference_of

D = "0" * 64
PLACE = Place(host="h", boot="b", pid=1, started=1)
FACTS = {"world_size": "8", "device": "cuda", "device_model": "NVIDIA H100", "torch": "2"}
TINY = Path(__file__).parents[1] / "tiny" / "plan.toml"


def attempt(number: int, *, from_: int | None = None, **other: object) -> AttemptStarted:
    receipt = None
    if from_ is not None:
        receipt = ResumeReceipt(
            update=from_, attempt=number - 1, manifest_sha256=D, needed="exact", exactness="exact"
        )
    given: dict[str, object] = {"facts": FACTS, "plan": D, "code": D, "data": D, "world_size": 8, **other}
    return AttemptStarted(attempt=number, launch="l", place=PLACE, resume=receipt, **given)  # type: ignore[arg-type]


def commit(update: int, attempt: int) -> Commit:
    return Commit(
        update=update, attempt=attempt, key="k/m", sha256=D, size_bytes=1, exactness="exact",
        reason="cadence", save_s=0.1, blocked_s=0.1,
    )  # fmt: skip


def state(
    attempts: Sequence[AttemptStarted], commits: Sequence[tuple[int, int]], rows: int, **other: object
) -> RunState:
    made = [commit(*each) for each in commits]
    return RunState(attempts=attempts, commits=made, rows=rows, **other)  # type: ignore[arg-type]


ONE = [(0, 1), (200, 1), (400, 1), (600, 1)]


def test_the_newest_two_checkpoints_and_two_updates_beyond_where_they_are_recorded() -> None:
    assert span_of(state([attempt(1)], ONE, 600)) == Span(attempt=1, after=400, last=600)
    assert span_of(state([attempt(1)], ONE, 601)) == Span(attempt=1, after=400, last=601)
    assert span_of(state([attempt(1)], ONE, 700)) == Span(attempt=1, after=400, last=602)


def test_what_an_attempt_began_with_is_not_restored() -> None:
    assert span_of(state([attempt(1)], [(0, 1), (200, 1)], 200)) is None
    both = [attempt(1), attempt(2, from_=400)]
    assert span_of(state(both, [*ONE[:3], (600, 2)], 600)) == Span(attempt=1, after=200, last=402)
    assert span_of(state(both, [*ONE[:2], (600, 2)], 600)) is None


@pytest.mark.parametrize(
    "other",
    [{"plan": "1" * 64}, {"code": "1" * 64}, {"data": "1" * 64}, {"facts": {**FACTS, "torch": "3"}}],
    ids=["plan", "code", "data", "facts"],
)
def test_only_what_is_trained_as_it_was(other: dict[str, object]) -> None:
    both = [attempt(1), attempt(2, from_=400, **other)]
    assert span_of(state(both, [*ONE[:3], (600, 2)], 600)) is None


def test_what_a_raykit_trained_that_recorded_less_is_left_alone() -> None:
    older = {name: value for name, value in FACTS.items() if name != "torch"}
    both = [attempt(1, facts=older), attempt(2, from_=400)]
    assert span_of(state(both, [*ONE[:3], (600, 2)], 600)) is None


@pytest.mark.parametrize(
    ("updates", "set_up_s", "update_s", "of", "share", "within"),
    [
        (202, 8.0, 0.1, 40_000, 0.01, True),  # 202 + 80 of 40,000 updates
        (202, 20.0, 0.1, 40_000, 0.01, False),  # the process takes as long as 200 updates to begin
        (202, 8.0, 0.1, 2_000, 0.01, False),
        (202, 8.0, 0.1, 2_000, 0.2, True),
        (1, 0.0, 0.1, 40_000, 0.0, False),  # none
        (202, 8.0, 0.0, 40_000, 1.0, False),  # nothing was measured
    ],
)
def test_an_early_one_may_cost_a_share_of_the_run(
    updates: int, set_up_s: float, update_s: float, of: int, share: float, within: bool
) -> None:
    assert within_share(updates, set_up_s=set_up_s, update_s=update_s, of=of, share=share) is within


def test_an_early_one_comes_behind_the_second_checkpoint_of_an_attempt() -> None:
    long = plan(updates=40_000, checkpoint_every=200, replay_share=0.01)
    assert [replays.early_at(long, after) for after in (0, 199, 200, 250)] == [402, 402, 602, 602]
    assert replays.early_at(long, 39_700) is None, "it would come at the end"
    assert replays.early_at(plan(updates=20_000, checkpoint_every=200), 0) is None, (
        "202 updates are more than 1 %"
    )
    assert replays.early_at(plan(updates=40_000, checkpoint_every=200, replay_share=0.0), 0) is None


def test_once_is_enough_while_the_run_trains_as_it_did() -> None:
    both = [attempt(1), attempt(2, from_=400)]
    assert replays.is_replayed(state(both, ONE, 600, compared=(EQUAL,)))
    assert not replays.is_replayed(state(both, ONE, 600))
    changed = [attempt(1), attempt(2, from_=400, code="1" * 64)]
    assert not replays.is_replayed(state(changed, ONE, 600, compared=(EQUAL,)))


def plan(**run: object) -> Plan:
    found = load_plan(TINY.read_bytes(), where="plan.toml")
    return found.model_copy(update={"run": found.run.model_copy(update=run)})


def gate(exactness: Exactness) -> GateResult:
    return GateResult(
        gate="resume", key=D, passed=True, scope="s", found="f", took_s=0.1, exactness=exactness
    )


EQUAL = Compared(how="replay", attempt=1, against=1, first=1801, last=2000, rows=200, manifests=1)
DONE = {"ends": {1: AttemptEnded(attempt=1, reason="completed", update=600)}}


def test_why_nobody_has_replayed_a_run() -> None:
    def why(of: RunState, asked: str = "end", needed: str = "exact") -> str | None:
        return why_not_replayed(of, asked=asked, needed=needed)

    running, done = state([attempt(1)], ONE, 600), state([attempt(1)], ONE, 600, **DONE)
    assert why(state([attempt(1)], ONE, 600, compared=(EQUAL,))) is None
    assert why(state([], [], 0)) is None
    assert why(done, needed="state-exact") == "not replayed: the plan needs only state-exact"
    only = state([attempt(1)], ONE, 600, gates={"resume": gate("state-exact")})
    assert why(only) == "not replayed: the run is only state-exact"
    assert why(running) == "replayed at the end (run.replay)"
    assert why(running, "never") == "no replay at the end was asked for (run.replay)"
    assert why(done) == "not replayable here: needs 8 x H100"
    assert why(state([attempt(1)], ONE[:2], 200, **DONE)) == "not replayed: nothing to replay"
    missed = Unreplayed(attempt=1, why="it took longer than its time")
    of = state([attempt(1)], ONE, 600, unreplayed=(missed,), **DONE)
    assert why(of) == "not replayed: it took longer than its time"


def test_what_came_of_one_is_told() -> None:
    assert words_of(EQUAL).startswith(
        "updates 1,801 to 2,000, replayed in another process: equal to the bit ("
    )
    unequal = EQUAL.model_copy(
        update={"difference": FirstDifference(update=1801, what="terms.fit.value", was="0.25", now="0.5")}
    )
    assert words_of(unequal).endswith("first at update 1,801, terms.fit.value: 0.25 -> 0.5")


def row(value: float, *, loss: float | None = None, reference: float | None = 1.0) -> Row:
    term = TermRow(value=value, weight=1.0, contribution=value, elements=3, reference=reference)
    return Row(
        attempt=1, update=7, epoch=0, samples=(0, 12), sources={"0": 12}, loss=value if loss is None else loss,
        terms={"fit": term}, lr=(0.1,), grad_norm=1.0, clipped=False, elapsed_s=value,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("was", "now", "what", "values"),
    [
        (row(0.5), row(0.25), "terms.fit.value", ("0.5", "0.25")),
        (row(0.5), row(0.5, loss=1.0), "loss", ("0.5", "1.0")),
        (row(0.0), row(-0.0), "terms.fit.value", ("0.0", "-0.0")),
        (row(0.5), row(0.5, reference=None), "terms.fit.reference", ("1.0", "absent")),
    ],
    ids=["a term before its sum", "the sum alone", "the sign of zero", "absent"],
)
def test_the_first_field_that_differs_is_named(
    was: Row, now: Row, what: str, values: tuple[str, str]
) -> None:
    found = difference_of(was, now)
    assert found is not None and (found.update, found.what, (found.was, found.now)) == (7, what, values)
