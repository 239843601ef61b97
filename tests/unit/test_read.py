"""Reading a store from Python: states, health, verified rows, tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from makerun import START_AT, RunMaker, make_run

import raykit
from raykit.errors import CorruptError, InvalidInput, NotFoundError, UnsafeNameError
from raykit.ids import canonical
from raykit.read import Root, RunView
from raykit.records import Row, Segment
from raykit.store import layout
from raykit.store.place import this_place
from raykit.testing import FaultStore, MemoryStore


def root_of(maker: RunMaker, *, later_s: float = 1.0) -> Root:
    """The maker's root as it looks `later_s` after its last entry."""
    return raykit.open(maker.store, clock=lambda: maker.at + later_s)


def view(maker: RunMaker, *, later_s: float = 1.0) -> RunView:
    return root_of(maker, later_s=later_s).run(maker.experiment)


def begun(**options: Any) -> RunMaker:
    maker = RunMaker(MemoryStore(), **options)
    maker.freeze()
    maker.launch()
    maker.begin()
    return maker


# --- state --------------------------------------------------------------------------------------------------


def test_a_completed_run_whole() -> None:
    maker = make_run(MemoryStore())
    found = view(maker)
    assert found.id == "digits/main"
    assert (found.state, found.health, found.holder, found.detail) == ("completed", "ok", None, None)
    assert (found.update, found.updates, found.superseded) == (40, 40, 7)
    assert found.ratio == maker.row(40).ratio
    assert found.figures.update_s == 0.5
    assert found.figures.development is not None
    assert (found.figures.development.metric, found.figures.development.update) == ("ratio", 40)
    assert [(a.attempt, a.launch) for a in found.attempts] == [(1, "launch-1"), (2, "launch-2")]
    assert [a.ended and (a.ended.reason, a.ended.update) for a in found.attempts] == [
        ("killed", 27),
        ("completed", 40),
    ]
    assert found.attempts[1].resume is not None
    assert [(c.commit.update, c.commit.attempt, c.counts) for c in found.commits] == [
        (0, 1, True),
        (10, 1, True),
        (20, 1, True),
        (30, 2, True),
        (40, 2, True),
    ]
    assert {gate.gate: gate.passed for gate in found.gates} == {"first": True, "resume": True}
    assert found.heard_at == maker.at


def test_before_anything_has_started() -> None:
    maker = RunMaker(MemoryStore())
    maker.freeze()
    found = view(maker)
    assert (found.state, found.health, found.update, found.updates) == ("not started", "unknown", 0, 40)
    assert found.heard_at is None


def test_from_launch_to_rows() -> None:
    maker = RunMaker(MemoryStore())
    maker.freeze()
    maker.launch()
    assert view(maker).state == "starting"
    assert view(maker).holder == maker.place
    maker.begin()
    assert (view(maker).state, view(maker).health) == ("running", "unknown")
    maker.rows(5)
    assert (view(maker).state, view(maker).health, view(maker).update) == ("running", "ok", 5)
    maker.ask_to_stop("SIGTERM")
    assert (view(maker).state, view(maker).detail) == ("stopping", "SIGTERM")


@pytest.mark.parametrize(
    ("reason", "state"),
    [("paused", "paused"), ("failed", "failed"), ("preempted", "stopped"), ("killed", "stopped")],
)
def test_what_a_launch_said_when_it_let_go(reason: Any, state: str) -> None:
    maker = begun()
    maker.rows(5)
    maker.end(reason, detail="because")
    assert view(maker).state == "stopping", "the attempt has ended, its launch has not let go yet"
    maker.release(reason)
    found = view(maker, later_s=1e6)
    assert (found.state, found.detail, found.holder) == (state, "because", None)


def test_of_another_machine_the_lease_decides() -> None:
    maker = begun()
    maker.rows(5)
    assert view(maker, later_s=59.9).state == "running"
    assert view(maker, later_s=60.1).state == "stopped"


def test_on_this_machine_the_process_decides() -> None:
    maker = begun(place=this_place())
    maker.rows(5)
    assert view(maker, later_s=1e6).state == "running"
    gone = begun(place=this_place().model_copy(update={"started": 1}))
    gone.rows(5)
    assert view(gone, later_s=0.0).state == "stopped"


def test_a_failed_gate_is_the_detail() -> None:
    maker = begun()
    maker.gate("resume", passed=False)
    assert view(maker).detail == "gate resume: finite"


# --- health -------------------------------------------------------------------------------------------------


def test_completed_is_not_healthy() -> None:
    # covers HIST-22
    maker = begun()
    maker.rows(5, nonfinite=True)
    maker.end("completed")
    maker.release("completed")
    found = view(maker)
    assert (found.state, found.health) == ("completed", "nonfinite")
    assert found.figures.health_detail == "loss, recon, grad_norm at update 5"
    assert found.plain()["health"] == "nonfinite"
    empty = begun()
    empty.end("completed")
    assert (view(empty).state, view(empty).health) == ("completed", "unknown")


def test_a_collapsed_field_is_seen_whatever_the_loss() -> None:
    maker = begun()
    maker.rows(5)
    maker.look(collapsed=True)
    maker.flush()
    found = view(maker)
    assert (found.health, found.figures.health_detail) == ("collapsed", "latent at update 5")
    assert found.ratio is not None
    maker.rows(5)
    maker.look()
    maker.flush()
    assert view(maker).health == "ok"


def test_a_skipped_step_of_the_scaler_is_no_fault() -> None:
    maker = begun()
    maker.add(maker.row(1, nonfinite=True, skipped=True))
    maker.flush()
    assert view(maker).health == "ok"


def test_silence_is_told_from_slowness() -> None:
    maker = begun(place=this_place())
    maker.rows(10)
    assert view(maker, later_s=59.0).health == "ok"
    assert view(maker, later_s=61.0).health == "silent"
    slow = begun(place=this_place())
    slow.seconds_per_update = 30.0
    slow.rows(10)
    assert view(slow, later_s=299.0).health == "ok"
    assert view(slow, later_s=301.0).health == "silent"


def test_workers_that_say_nothing_are_seen_though_their_launch_beats() -> None:
    maker = begun(place=this_place())
    maker.beat()
    maker.at += 300.0
    maker.beat()
    assert view(maker).health == "unknown", "before the first rows nobody knows how long they may take"
    maker.rows(10)
    maker.at += 300.0
    maker.beat()
    found = view(maker)
    assert (found.state, found.health, found.figures.health_detail) == ("running", "silent", "for 302 s")


# --- rows ---------------------------------------------------------------------------------------------------


def test_rows_are_1_to_n_of_the_attempts_that_count() -> None:
    # covers I4, HIST-02
    table = root_of(make_run(MemoryStore())).history("digits")
    rows = list(table.rows())
    assert [row.update for row in rows] == list(range(1, 41))
    assert [row.attempt for row in rows] == [1] * 20 + [2] * 20
    assert all(row.terms["recon"].target_ms for row in rows)
    assert list(table) == rows
    assert (table.last_update, table.superseded) == (40, 7)
    for count in (0, 1, 5, 7, 40, 99):
        assert table.tail(count) == rows[len(rows) - min(count, 40) :]


def test_a_part_of_a_segment_can_be_superseded() -> None:
    maker = begun()
    maker.rows(3)
    maker.commit()
    maker.rows(5)
    maker.launch()
    maker.begin()
    maker.rows(4)
    maker.flush()
    table = root_of(maker).history("digits")
    assert [(row.update, row.attempt) for row in table] == [(u, 1 if u < 4 else 2) for u in range(1, 8)]
    assert table.superseded == 5


def test_other_series() -> None:
    root = root_of(make_run(MemoryStore()))
    development, monitor = root.history("digits", "development"), root.history("digits/main", "monitor")
    assert [row.update for row in development] == [0, 10, 20, 30, 40]
    assert [row.fields["latent"].space for row in monitor] == ["log"] * 5
    assert development.tail(1)[0].metrics.keys() == {"ratio", "recon"}
    with pytest.raises(InvalidInput, match="no series 'validation'"):
        root.history("digits", "validation")  # type: ignore[call-overload]


def test_coverage_counts_what_was_trained_on() -> None:
    # covers HIST-07
    root = root_of(make_run(MemoryStore()))
    assert root.history("digits").coverage() == {"0": 40 * 40, "1": 24 * 40}
    with pytest.raises(InvalidInput, match="no coverage"):
        root.history("digits", "development").coverage()


def test_a_tail_reads_no_more_than_it_needs() -> None:
    maker = make_run(MemoryStore())
    store = FaultStore(maker.store)
    table = raykit.open(store).history("digits")
    store.fault.operations.clear()
    assert len(table.tail(7)) == 7
    assert len(store.fault.operations) == 2


def segments(store: MemoryStore) -> list[str]:
    return sorted(key for key in store.objects if "/history/2/0" in key)


def parse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data: bytes, what: str) -> Row:
        raise AssertionError(f"{what} is parsed")

    monkeypatch.setattr(Row, "from_bytes", refuse)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda objects, key: objects.update({key: objects[key].replace(b"0.", b"1.", 1)}), "sha256"),
        (lambda objects, key: objects.update({key: objects[key][:-1]}), "sha256"),
        (lambda objects, key: objects.update({key: objects[key] + b"x"}), "bytes long"),
        (lambda objects, key: objects.pop(key), "missing"),
    ],
)
def test_a_changed_segment_is_refused_before_it_is_parsed(
    spoil: Callable[[dict[str, bytes], str], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers S8, F9
    store = MemoryStore()
    maker = make_run(store)
    key = segments(store)[-1]
    spoil(store.objects, key)
    found = view(maker)
    assert (found.state, found.health) == ("completed", "corrupt")
    parse_nothing(monkeypatch)
    with pytest.raises(CorruptError, match=why) as refused:
        root_of(maker).history("digits").tail(1)
    assert key in refused.value.message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: [*rows[:2], *rows[3:]], "a row missing or twice"),
        (lambda rows: [*rows[:2], rows[1], *rows[2:]], "a row missing or twice"),
        (lambda rows: [rows[0], rows[2], rows[1], *rows[3:]], "a row missing or twice"),
        (lambda rows: rows[1:], "does not hold updates 1 to 5"),
        (lambda rows: [*rows[:4], rows[4].model_copy(update={"attempt": 2})], "another attempt than 1"),
    ],
)
def test_a_segment_that_is_not_what_the_log_says_is_refused(
    change: Callable[[list[Row]], list[Row]], why: str
) -> None:
    maker = begun()
    written = maker.segment("train", change([maker.row(n) for n in range(1, 6)]))
    named = {"first": 1, "last": 5}
    maker.say([written.model_copy(update=named)])
    with pytest.raises(CorruptError, match=why):
        list(root_of(maker).history("digits"))


def test_a_gap_or_a_duplicate_in_the_log_is_refused() -> None:
    # covers HIST-15, HIST-16
    for first, last, why in [(7, 8, "updates 6 to 6 are missing"), (5, 6, "update 5 twice")]:
        maker = begun()
        maker.rows(5)
        maker.say([maker.segment("train", [maker.row(n) for n in range(first, last + 1)])])
        with pytest.raises(CorruptError, match=why):
            root_of(maker).history("digits")
        with pytest.raises(CorruptError, match=why):
            root_of(maker).run("digits")
        (found,) = root_of(maker).runs()
        assert found.state == "corrupt"


def test_an_update_that_was_evaluated_twice_is_refused() -> None:
    maker = begun()
    events = maker.log.state.events
    maker.say([e for e in events if isinstance(e, Segment) and e.series == "development"])
    with pytest.raises(CorruptError, match="update 0 after update 0"):
        list(root_of(maker).history("digits", "development"))


# --- tables -------------------------------------------------------------------------------------------------


def test_arrow() -> None:
    table = root_of(make_run(MemoryStore())).history("digits").to_arrow()
    assert table.num_rows == 40
    assert table["update"].to_pylist() == list(range(1, 41))
    types = {name: table.schema.field(name).type for name in table.column_names}
    assert types["samples_first"] == types["terms.recon.elements"] == pa.int64()
    assert types["loss"] == types["terms.recon.ratio"] == types["grad_norm"] == pa.float64()
    assert types["clipped"] == pa.bool_()
    assert types["lr"] == pa.list_(pa.float64())
    assert types["sources"] == pa.map_(pa.string(), pa.int64())
    assert table["samples_end"].to_pylist()[-1] == 40 * 64
    assert "schema" not in types


def test_arrow_of_rows_that_are_not_finite_and_of_other_series() -> None:
    maker = begun()
    maker.rows(3, nonfinite=True)
    maker.flush()
    table = root_of(maker).history("digits").to_arrow()
    assert table["loss"].to_pylist()[-1] is None
    assert table["nonfinite"].to_pylist() == [None, None, ["loss", "recon", "grad_norm"]]
    root = root_of(make_run(MemoryStore()))
    assert root.history("digits", "development").to_arrow()["metrics.ratio"].null_count == 0
    assert root.history("digits", "monitor").to_arrow()["fields.latent.collapsed"].type == pa.bool_()
    assert root_of(begun()).history("digits").to_arrow().num_rows == 0


def test_pandas() -> None:
    frame = root_of(make_run(MemoryStore())).history("digits").to_pandas()
    assert list(frame["update"]) == list(range(1, 41))
    assert frame["terms.recon.ratio"].iloc[-1] == frame["ratio"].iloc[-1]


def test_without_pandas_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match="pandas is not installed") as refused:
        root_of(make_run(MemoryStore())).history("digits").to_pandas()
    assert "pip install pandas" in (refused.value.remedy or "")


# --- the root -----------------------------------------------------------------------------------------------


def test_what_is_there() -> None:
    store = MemoryStore()
    make_run(store)
    make_run(store, experiment="digits", run="again")
    maker = make_run(store, experiment="alpha")
    root = root_of(maker)
    assert root.experiments() == ["alpha", "digits"]
    assert [run.id for run in root.runs()] == ["alpha/main", "digits/again", "digits/main"]
    assert [run.id for run in root.runs("digits")] == ["digits/again", "digits/main"]
    assert root.run("alpha").id == root.run("alpha/main").id == "alpha/main"
    assert root.run("digits/again").run == "again"
    assert raykit.open(MemoryStore()).runs() == []


def test_names_that_mean_nothing_are_refused_with_a_hint() -> None:
    store = MemoryStore()
    make_run(store)
    root = root_of(make_run(store, run="again"))
    with pytest.raises(InvalidInput, match="has 2 runs") as several:
        root.run("digits")
    assert several.value.rule == "one of digits/again, digits/main"
    for name, hint in [("digit", "digits"), ("digits/man", "digits/main"), ("zzz", None)]:
        with pytest.raises(NotFoundError) as unknown:
            root.run(name)
        assert unknown.value.rule == (f"did you mean {hint}?" if hint else None)
    with pytest.raises(NotFoundError):
        root.runs("zzz")
    for name in ("../etc", "", "Digits"):
        with pytest.raises(UnsafeNameError):
            root.run(name)
    with pytest.raises(NotFoundError) as empty:
        raykit.open(MemoryStore()).run("digits")
    assert empty.value.remedy == "raykit launch PLAN"


def test_one_broken_run_does_not_hide_the_others() -> None:
    store = MemoryStore()
    make_run(store)
    maker = make_run(store, experiment="other")
    key = layout.log_entry(layout.run_log("digits", "main"), 33)
    store.objects[key] = store.objects[key].replace(b"released", b"releasef")
    broken, whole = root_of(maker).runs()
    assert (broken.state, whole.state) == ("corrupt", "completed")
    assert key in (broken.detail or "")
    with pytest.raises(CorruptError, match=key):
        root_of(maker).run("digits")


def test_a_run_without_its_lock_can_still_be_looked_at() -> None:
    store = MemoryStore()
    maker = make_run(store)
    for key in [key for key in store.objects if key.endswith("plan.lock")]:
        store.objects[key] = store.objects[key].replace(b"40", b"41")
    found = view(maker)
    assert (found.state, found.updates, found.lock) == ("completed", None, None)


def test_the_selected_checkpoint_is_the_best_that_was_evaluated() -> None:
    maker = make_run(MemoryStore())
    root = root_of(maker)
    selected = root.selected(root.run("digits"))
    assert selected is not None
    assert selected.update == 40
    unevaluated = begun()
    unevaluated.rows(5)
    unevaluated.commit()
    root = root_of(unevaluated)
    selected = root.selected(root.run("digits"))
    assert selected is not None
    assert selected.update == 0, "update 5 has a checkpoint and no evaluation"


def test_a_view_is_json() -> None:
    for maker in (make_run(MemoryStore()), begun()):
        plain = view(maker).plain()
        assert json.loads(canonical(plain)) == plain
        assert plain["id"] == "digits/main"
        assert plain["attempts"][0]["place"]["host"] == "n7"
    assert START_AT < plain["heard_at"] <= maker.at


def test_reading_loads_neither_ray_nor_torch_nor_pyarrow() -> None:
    program = (
        "import sys, raykit; raykit.open('.').runs();"
        "heavy = {'ray', 'torch', 'pyarrow', 'numpy', 'pandas', 's3fs', 'matplotlib'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_package_says_what_it_offers() -> None:
    recipes = {"Classes", "Draws", "Field", "Image", "LossTerm", "Recipe", "Text"}
    names = recipes | {"GeneratedSet", "Root", "__version__", "generated", "open"}
    assert set(raykit.__all__) == names
    assert raykit.__version__
    assert raykit.Root is Root
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        raykit.nothing  # noqa: B018
