"""What a failed unit means: again, aside, or everyone stops; and of which class an exception is."""

from __future__ import annotations

import linecache
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from raykit.defects import (
    CERTAIN,
    CHANCE,
    FLAKY,
    SHARED,
    Attempted,
    Failed,
    Judged,
    by_chance,
    confirmed,
    intermittent,
    judge,
    next_after,
    signature,
)
from raykit.errors import (
    ConflictError,
    CorruptError,
    DeadlineError,
    GateError,
    NotFoundError,
    PlanError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.records import Failure, FailureKind
from raykit.store.local import LocalStore
from raykit.testing import MemoryStore
from raykit.work.failing import MAX_FRAMES, MAX_WORDS, cause_of, kind_of, where

KINDS: tuple[FailureKind, ...] = (
    "infrastructure",
    "memory",
    "deadline",
    "lost",
    "recipe",
    "data",
    "corrupt",
    "bounds",
)


def failed(kind: FailureKind, worker: str = "a", cause: str = "x") -> Failed:
    return Failed(kind=kind, signature=signature(kind, cause), worker=worker)


# --- what follows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_one_failure_is_tried_again(kind: FailureKind) -> None:
    # covers QC-22
    assert next_after([failed(kind)], tries=3) == "retry"
    assert next_after([], tries=1) == "retry"


@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_is_tried_for_ever(kind: FailureKind) -> None:
    # covers F28, F29
    assert next_after([failed(kind)] * 2, tries=3) == "retry"
    assert next_after([failed(kind)] * 3, tries=3) == "park"
    assert next_after([failed(kind)], tries=1) == "park"


@pytest.mark.parametrize("kind", sorted(SHARED))
def test_the_same_from_a_second_process_stops_everyone(kind: FailureKind) -> None:
    assert next_after([failed(kind, "a"), failed(kind, "b")], tries=9) == "pause"
    assert next_after([failed(kind, "a"), failed(kind, "a")], tries=9) == "retry"
    assert next_after([failed(kind, "a", "x"), failed(kind, "b", "y")], tries=9) == "retry"


@pytest.mark.parametrize("kind", sorted(CERTAIN - SHARED))
def test_what_is_wrong_with_one_unit_puts_it_aside_and_stops_nobody(kind: FailureKind) -> None:
    assert next_after([failed(kind, "a"), failed(kind, "b")], tries=9) == "park"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - CERTAIN))
def test_bad_luck_of_two_processes_is_no_defect(kind: FailureKind) -> None:
    assert confirmed([failed(kind, "a"), failed(kind, "b")]) is None
    assert next_after([failed(kind, "a"), failed(kind, "b")], tries=3) == "retry"


def test_bad_luck_between_does_not_hide_a_defect() -> None:
    assert next_after([failed("recipe", "a"), failed("lost", "b"), failed("recipe", "c")], tries=9) == "pause"
    newest_is_luck = [failed("recipe", "a"), failed("recipe", "b"), failed("lost", "c")]
    assert next_after(newest_is_luck, tries=9) == "retry"


def test_a_signature_is_of_kind_error_and_place() -> None:
    told = [
        signature("recipe", "ValueError", ["a"]),
        signature("recipe", "ValueError", ["b"]),
        signature("recipe", "KeyError", ["a"]),
        signature("data", "ValueError", ["a"]),
    ]
    assert len(set(told)) == 4
    assert told[0] == signature("recipe", "ValueError", iter(["a"]))


# --- all failures of a contract together --------------------------------------------------------------------


def attempts(*units: tuple[int, str], kind: FailureKind = "recipe", cause: str = "x") -> list[Attempted]:
    """`(3, "ab")`: unit 3 has failed in the processes a and b."""
    return [
        Attempted(unit=unit, failed=failed(kind, worker, cause))
        for unit, workers in units
        for worker in workers
    ]


def judged(
    found: list[Attempted], *, published: tuple[int, ...] = (), count: int = 20, **other: Any
) -> Judged:
    return judge(found, **{"published": published, "published_count": count, "tries": 3, **other})


def test_nothing_has_failed() -> None:
    assert judged([]) == Judged()


def test_one_failure_makes_its_unit_suspected() -> None:
    # covers F25
    found = judged(attempts((3, "a")))
    assert found.suspected == {3}
    assert not found.parked
    assert found.shared is None


@pytest.mark.parametrize("kind", sorted(set(KINDS) - CERTAIN))
def test_bad_luck_of_one_attempt_suspects_nothing(kind: FailureKind) -> None:
    assert judged(attempts((3, "ab"), kind=kind)) == Judged()
    spent = judged(attempts((3, "abc"), kind=kind))
    assert spent.parked == {3}
    assert spent.doubted == {}


@pytest.mark.parametrize("kind", sorted(CERTAIN))
def test_two_processes_at_one_unit_alone_park_it(kind: FailureKind) -> None:
    found = judged(attempts((3, "ab"), kind=kind))
    assert found.parked == {3}
    assert found.doubted == {3: signature(kind, "x")}
    assert judged(attempts((3, "aa"), kind=kind)).parked == frozenset(), "one process is one witness"
    assert judged([*attempts((3, "a")), *attempts((3, "b"), cause="y")]).parked == frozenset()
    assert judged(attempts((3, "ab"), kind=kind), canary={3}).parked == frozenset(), (
        "a canary has all its tries"
    )


def test_what_a_unit_has_got_over_says_nothing() -> None:
    # covers F26
    found = attempts((3, "ab"), (4, "cd"), (7, "e"))
    assert intermittent(found, {7}) == {signature("recipe", "x")}
    assert judged(found, published=(7,)) == Judged(intermittent=frozenset({signature("recipe", "x")}))
    spent = judged([*found, *attempts((3, "f"))], published=(7,))
    assert (spent.parked, spent.doubted, spent.suspected) == ({3}, {}, frozenset())
    other = judged([*found, *attempts((5, "g"), cause="y")], published=(7,))
    assert other.suspected == {5}, "another cause says something"


def test_several_units_alike_are_a_defect_once_others_have_tried_them_again() -> None:
    # covers F25, FLEET-01
    assert judged(attempts((3, "a"), (4, "b"), (5, "c"), (6, "d")), count=50).shared is None
    here = judged(attempts((3, "abe"), (4, "bcd")), count=50)
    assert here.shared is not None
    assert (here.shared.why, here.shared.kind) == ("shared", "recipe")
    assert here.shared.signature == signature("recipe", "x")
    assert (here.shared.units, here.shared.failures, here.shared.workers) == ((3, 4), 6, 5)
    assert judged(attempts((3, "abe"), (4, "bcd")), count=10).shared is None, "it may be chance yet"
    alone = judged(attempts((3, "abcdefghijkl")), count=1000)
    assert alone.shared is None, "one unit is the matter of one unit"
    apart = judged([*attempts((3, "abc")), *attempts((4, "abc"), cause="y")], count=1000)
    assert apart.shared is None, "so are two that have nothing in common"


def test_a_unit_that_was_given_up_is_out_of_it() -> None:
    found = attempts((3, "abc"), (4, "abc"))
    assert judged(found, count=1000).shared is not None
    assert judged(found, count=1000, given_up={3}).shared is None
    assert judged(found, count=1000, given_up={3, 4}) == Judged()


def test_a_canary_unit_has_all_its_tries() -> None:
    # covers FLEET-08
    assert judged(attempts((0, "ab")), count=0, canary={0, 1}).shared is None
    found = judged(attempts((0, "abc")), count=0, canary={0, 1}).shared
    assert found is not None
    assert (found.why, found.units, found.failures) == ("canary", (0,), 3)
    lost = judged(attempts((1, "abc"), kind="lost"), count=1, canary={0, 1}).shared
    assert lost is not None
    assert lost.why == "canary", "what is bad luck elsewhere is not while nothing has come of anything"
    over = judged(attempts((0, "abc"), (1, "d")), published=(1,), count=1, canary={0, 1})
    assert over.shared is None
    assert over.parked == {0}


def test_rows_of_an_exact_contract_that_two_processes_find_out_of_bounds_are_so_for_everyone() -> None:
    # covers FLEET-01, FLEET-08
    found = attempts((0, "ab"), kind="bounds")
    assert judged(found, canary={0, 1}).shared is None, "other processes may make other rows"
    canary = judged(found, canary={0, 1}, exact=True).shared
    assert canary is not None
    assert (canary.why, canary.kind, canary.units, canary.failures) == ("canary", "bounds", (0,), 2)
    assert judged(attempts((0, "aa"), kind="bounds"), canary={0}, exact=True).parked == frozenset()
    alone = judged(found, exact=True)
    assert (alone.parked, alone.shared) == ({0}, None)
    two = judged(attempts((3, "ab"), (7, "bc"), kind="bounds"), count=5, exact=True).shared
    assert two is not None
    assert (two.why, two.units, two.failures, two.workers) == ("shared", (3, 7), 4, 3)
    once = judged(attempts((3, "ab"), (7, "c"), kind="bounds"), count=5, exact=True)
    assert (once.shared, once.parked, once.suspected) == (None, {3}, {7})


def test_parked_units_are_no_matter_of_their_own_once_they_are_many() -> None:
    many = [attempt for unit in range(8) for attempt in attempts((unit, "abc"), cause=f"cause {unit}")]
    found = judged(many, count=71)
    assert found.shared is not None
    assert (found.shared.why, found.shared.signature, found.shared.units) == ("parked", None, tuple(range(8)))
    assert judged(many, count=72).shared is None
    assert judged(many[3:], count=0).shared is None


def test_how_much_has_to_be_seen_before_it_is_no_chance() -> None:
    needs = {}
    for published in (2, 10, 50, 1000):
        again = next(n for n in range(1, 20) if by_chance([2] * n, published=published) <= CHANCE)
        needs[published] = again
    assert needs == {2: 4, 10: 4, 50: 2, 1000: 1}
    assert by_chance([], published=5) == 1
    assert by_chance([0] * 50, published=5) == 1, "failing once is no evidence, however many do"
    assert by_chance([1] * 8, published=0) == pytest.approx(FLAKY**8)


# --- of which class -----------------------------------------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


class CudaError(OutOfMemoryError):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "memory"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
        (CudaError("x"), "memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 1 TB"),
            "memory",
        ),
        (RuntimeError("CUDA error: out of memory"), "memory"),
        (OSError(12, "Cannot allocate memory"), "memory"),
        (ValueError("out of memory"), "recipe"),
        (StoreUnavailableError("no answer"), "infrastructure"),
        (UnknownOutcomeError("no answer"), "infrastructure"),
        (DeadlineError("late"), "infrastructure"),
        (CorruptError("bytes"), "corrupt"),
        (ConflictError("other bytes"), "corrupt"),
        (GateError("other images", field="dataset"), "data"),
        (PlanError("other images", field="dataset.train"), "data"),
        (GateError("no such metric", field="evaluate"), "recipe"),
        (GateError("no field"), "recipe"),
        (ZeroDivisionError("division by zero"), "recipe"),
        (OSError(2, "no such file"), "recipe"),
        (NotFoundError("a key of the recipe's own"), "recipe"),
    ],
    ids=repr,
)
def test_of_which_class_an_error_is(error: Exception, kind: FailureKind) -> None:
    assert kind_of(error) == kind
    assert cause_of(error).kind == kind


def caught(act: Any) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def test_what_the_store_itself_raises_is_no_fault_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    error = caught(lambda: LocalStore(tmp_path).get("a-file/below"))
    assert kind_of(error) in ("infrastructure", "corrupt")
    missing = caught(lambda: LocalStore(tmp_path).get("not-there"))
    assert isinstance(missing, NotFoundError)
    assert kind_of(missing) == "corrupt", "what a log names is gone"
    assert kind_of(caught(lambda: MemoryStore().get("x"))) == "recipe", (
        "not raised inside the store's own code"
    )


# --- what two failures have in common -----------------------------------------------------------------------


def recipe(folder: Path, text: str) -> Any:
    """A recipe's module, read from a folder of its own as each worker does."""
    path = folder / "recipe.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    linecache.checkcache()
    module = types.ModuleType("recipe")
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


RAISES = (
    "import json\n\ndef score(x):\n    return 1 / (x - x)\n\ndef parse(x):\n    return json.loads('{' + x)\n"
)


def test_a_signature_knows_no_folder_no_number_and_no_message(tmp_path: Path) -> None:
    one = recipe(tmp_path / "tmp-1", RAISES)
    other = recipe(tmp_path / "tmp-2", "# a comment moves every line\n" + RAISES)
    a, b = caught(lambda: one.score(3)), caught(lambda: other.score(99))
    # The lines of this very test differ; those of the recipe do not.
    assert [line for line in where(a) if line.startswith("recipe.py")] == [
        "recipe.py:score: return 1 / (x - x)"
    ]
    same = [cause_of(caught(lambda at=at, x=x: at.parse(x))) for at in (one, other) for x in ("1", '"a"')]  # type: ignore[misc]
    assert len({cause.signature for cause in same}) == 1
    assert len({cause.message for cause in same}) == 2
    assert cause_of(a).signature != same[0].signature
    assert str(tmp_path) not in " ".join([*where(a), *where(b)])


def test_libraries_are_left_out(tmp_path: Path) -> None:
    error = caught(lambda: recipe(tmp_path, RAISES).parse("x"))
    files = {line.split(":")[0] for line in where(error)}
    assert files == {"test_defects.py", "recipe.py"}


def test_a_recursion_of_any_depth_has_one_signature(tmp_path: Path) -> None:
    deep = recipe(tmp_path, "def again(n):\n    return again(n + 1) if n else undefined\n")
    left = sys.getrecursionlimit()
    try:
        signatures = set()
        for limit in (220, 320):
            sys.setrecursionlimit(limit)
            signatures.add(cause_of(caught(lambda: deep.again(1))).signature)
    finally:
        sys.setrecursionlimit(left)
    assert len(signatures) == 1


def test_frames_are_bounded(tmp_path: Path) -> None:
    text = (
        "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(60))
        + "def f60():\n    raise KeyError\n"
    )
    error = caught(recipe(tmp_path, text).f0)
    assert len(where(error)) == MAX_FRAMES
    assert where(error)[-1] == "recipe.py:f60: raise KeyError"


@pytest.mark.parametrize(
    "message", ["", "x" * 99_999, "a lone \udc80 surrogate", "nul \0", "\n\n", "umlaut \u00fc"], ids=repr
)
def test_every_message_fits_a_record(message: str) -> None:
    cause = cause_of(ValueError(message))
    failure = Failure(
        request="0" * 64,
        n=1,
        kind=cause.kind,
        signature=cause.signature,
        message=cause.message,
        worker="qc-1",
        said_by="qc-1",
        at=1.0,
    )
    assert Failure.from_bytes(failure.to_bytes(), "it") == failure
    assert cause.message.startswith("ValueError: ")
    assert len(cause.message) <= MAX_WORDS
