"""`check` and searches: their tables, their logs, the runs and the money of their rows.

# covers TUNE-05, TUNE-06, TUNE-13, RAY-12, RAY-13, RAY-14, I1, I4, I6, I8, I11, I12, I14
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from makerun import ELSEWHERE
from makesearch import SearchMaker, make_going, make_search, run_row

from raykit.errors import CorruptError
from raykit.ids import sha256
from raykit.records import (
    Begun,
    Corrected,
    Drawn,
    Driven,
    LetGo,
    Picked,
    Record,
    Registered,
    RowEnded,
    RunRecord,
    SearchEntry,
    SearchRegistration,
)
from raykit.store import layout
from raykit.store.attempts import sealed
from raykit.store.candidates import register
from raykit.store.check import check
from raykit.store.commit import MANIFEST
from raykit.store.ledger import Ledger
from raykit.store.log import Log
from raykit.store.search import read_registration
from raykit.testing import Fault, FaultStore, MemoryStore
from raykit.testing.invariants import check_invariants

NAME = "lr-search"
TABLE = layout.search_registration(NAME, "main")
LOG = layout.search_log(NAME, "main")
Change = Callable[[Record], Sequence[Record]]


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    store = MemoryStore()
    make_search(store)
    return store.objects


def found(objects: dict[str, bytes], *, read_data: bool = True) -> list[tuple[str, str]]:
    report = check(MemoryStore(dict(objects)), read_data=read_data)
    return [(finding.invariant, f"{finding.rule}: {finding.found}") for finding in report.findings]


def finds(objects: dict[str, bytes], invariant: str, says: str, *, read_data: bool = True) -> None:
    """The check finds this, and nothing else."""
    told = found(objects, read_data=read_data)
    assert [number for number, text in told if says in text] == [invariant], told
    assert len(told) == 1, told


def retold(objects: dict[str, bytes], change: Change) -> dict[str, bytes]:
    """The same store, as if other things had been written into the search's log."""
    store = MemoryStore({key: data for key, data in objects.items() if not key.startswith(LOG)})
    old = Log(MemoryStore(dict(objects)), LOG, SearchEntry, by="reader").refresh()
    log = Log(store, LOG, SearchEntry, by="maker")
    for entry in old:
        events = [other for event in entry.events for other in change(event)]
        log.append(lambda _, events=events: events, at=entry.at)  # type: ignore[misc]
    return store.objects


def where(kind: type[Record], row: int, **changes: Any) -> Change:
    """Of one event: other fields."""

    def change(event: Record) -> Sequence[Record]:
        return [event.model_copy(update=changes)] if isinstance(event, kind) and event.row == row else [event]  # type: ignore[attr-defined]

    return change


def table_with(objects: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    """The same store with another registration."""
    return {**objects, TABLE: sealed(the_table(objects).model_copy(update=changes))}


def the_table(objects: dict[str, bytes]) -> SearchRegistration:
    table = read_registration(MemoryStore(dict(objects)), NAME)
    assert table is not None
    return table


def test_searches_are_whole() -> None:
    # covers I12
    for make in (make_search, make_going):
        store = MemoryStore()
        make(store)
        report = check_invariants(store)
        assert (report.findings, report.orphans, report.unknown) == ((), (), ())
        assert (report.counts["searches"], report.counts["trials"]) == (1, 12)


def test_a_search_that_nobody_came_to_begin_is_whole() -> None:
    store = MemoryStore()
    SearchMaker(store).register()
    report = check_invariants(store)
    assert (report.findings, report.orphans) == ((), ())


# --- what was registered ----------------------------------------------------------------------------------------


def test_a_log_or_a_trial_without_a_table_is_found(objects: dict[str, bytes]) -> None:
    # covers TUNE-05, I1
    without = {key: data for key, data in objects.items() if key != TABLE}
    finds(without, "I1", "a search is registered before its first trial")
    neither = {key: data for key, data in without.items() if not key.startswith(LOG)}
    told = found(neither)
    assert [f"trial-{n:03d} is none" in text for n, (_, text) in enumerate(told[:10], 1)] == [True] * 10
    assert {number for number, _ in told[10:]} == {"I6"}, "and nobody says what the money was for"


@pytest.mark.parametrize(
    ("changes", "invariant", "says"),
    [
        ({"plan": sha256(b"x")}, "I14", "the experiment's log locks no such plan"),
        ({"code": sha256(b"x")}, "I14", "the experiment's log locks no such plan"),
        ({"concurrent": 3}, "I14", "the number at once is 3, and the plan says 2"),
        ({"mode": "max"}, "I14", "the metric is ('max', 'development.ratio')"),
        ({"sampler": {"name": "random", "seed": 8}}, "I14", "the sampler is {'name': 'random', 'seed': 8}"),
        ({"scheduler": None}, "I14", "the scheduler is None"),
    ],
)
def test_a_table_that_its_plan_does_not_ask_for_is_found(
    objects: dict[str, bytes], changes: dict[str, Any], invariant: str, says: str
) -> None:
    # covers TUNE-03, TUNE-04, TUNE-05, I14
    told = found(table_with(objects, **changes))
    assert any(number == invariant and says in text for number, text in told), told


def test_a_longer_table_and_other_settings_are_found(objects: dict[str, bytes]) -> None:
    # covers TUNE-05
    table = the_table(objects)
    rows = (*table.rows, table.rows[-1].model_copy(update={"row": 13}))
    told = found(table_with(objects, rows=rows))
    assert any("the repeats by rank and seed is" in text for _, text in told), told
    wide = table.rows[1].model_copy(update={"params": {"lr": 0.9, "width": 64}})
    told = found(table_with(objects, rows=(table.rows[0], wide, *table.rows[2:])))
    assert ("I14", "a setting is one of the space: row 2 has lr = 0.9") in told
    assert any("a trial has the setting of its row: trial-002" in text for _, text in told)
    first = table.rows[0].model_copy(update={"params": {"lr": 0.002, "width": 32}})
    told = found(table_with(objects, rows=(first, *table.rows[1:])))
    assert any(
        "row 1 is {'lr': 0.002, 'width': 32}, and the plan says {'lr': 0.001" in text for _, text in told
    )


def test_a_table_that_cannot_be_read_is_found_once(objects: dict[str, bytes]) -> None:
    for data in (b"{}", objects[TABLE][:-1], objects[TABLE].replace(b'"lr-search"', b'"lr-search" ')):
        told = found({**objects, TABLE: data})
        assert [number for number, _ in told] == ["I2"], told


# --- what its log says ------------------------------------------------------------------------------------------


def twice(event: Record) -> Sequence[Record]:
    return [event, event] if isinstance(event, RowEnded) and event.row == 4 else [event]


def without_first_begun(event: Record) -> Sequence[Record]:
    return [] if isinstance(event, Begun) and event.row == 1 else [event]


def test_two_ends_or_an_end_without_a_beginning_are_found(objects: dict[str, bytes]) -> None:
    # covers RAY-12, I11
    finds(retold(objects, twice), "I11", "row 4 is ended after its end (completed)")
    finds(retold(objects, without_first_begun), "I11", "row 1 is completed, and was never begun")


def test_more_rows_at_once_than_registered_are_found(objects: dict[str, bytes]) -> None:
    def early(event: Record) -> Sequence[Record]:
        if isinstance(event, Begun) and event.row == 1:
            moved = [event.model_copy(update={"row": n, "launch": f"extra-{n}"}) for n in (2, 4)]
            return [event, *moved]
        return [event]

    told = found(retold(objects, early))
    assert ("I6", "at most 2 rows are live at once: row 4 is begun beside 2 others") in told


def test_a_launch_that_nobody_said_and_one_of_two_rows_are_found(objects: dict[str, bytes]) -> None:
    # covers RAY-06
    other = retold(objects, where(Begun, 2, launch="somebody-else"))
    finds(other, "I4", "takes trial-002, and nothing says so")
    shared = retold(objects, where(Begun, 2, launch="lr-search-trial-001-launch-1"))
    told = found(shared)
    assert any("a launch is of one row: " in text for _, text in told), told


def test_a_setting_outside_the_space_is_found(objects: dict[str, bytes]) -> None:
    told = found(retold(objects, where(Drawn, 9, params={"lr": 0.5, "width": 32})))
    assert ("I14", "a setting is one of the space: row 9 has lr = 0.5") in told
    told = found(retold(objects, where(Drawn, 9, params={"lr": 0.01})))
    assert ("I14", "a setting is one of the space: row 9 sets lr") in told


def test_who_lets_go_of_what_is_not_theirs_is_found(objects: dict[str, bytes]) -> None:
    def gone(event: Record) -> Sequence[Record]:
        return [event, LetGo(driver="another")] if isinstance(event, Picked) else [event]

    finds(retold(objects, gone), "I4", "another lets go, and nobody has it")


def test_a_search_that_was_driven_by_several_is_whole(objects: dict[str, bytes]) -> None:
    drivers = iter(range(1000))

    def driven(event: Record) -> Sequence[Record]:
        n = next(drivers)
        return [
            Driven(driver=f"d{n}", place=ELSEWHERE, raykit="1"),
            event,
            *([LetGo(driver=f"d{n}")] if n % 2 else []),
        ]

    assert found(retold(objects, driven)) == []


# --- what its rows came to --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "changes", "invariant", "says"),
    [
        (4, {"cost": 1}, "I6", "row 4 has cost 1, and the ledger has"),
        (12, {"cost": 1}, "I6", "row 12 has cost 1, and the ledger has 0 for trial-012"),
        (4, {"attempts": 2}, "I11", "row 4 ended after 2 attempts of 1"),
        (4, {"checkpoint": sha256(b"x")}, "I1", "which is no commit of trial-004"),
        (4, {"at": 30}, "I1", "of update 30, which is no commit of trial-004"),
        (5, {"end": "completed"}, "I11", "row 5 is completed, and its run is not"),
    ],
)
def test_a_row_that_ended_otherwise_is_found_without_reading_data(
    objects: dict[str, bytes], row: int, changes: dict[str, Any], invariant: str, says: str
) -> None:
    # covers TUNE-06, TUNE-13, RAY-13
    told = found(retold(objects, where(RowEnded, row, **changes)), read_data=False)
    assert [number for number, text in told if says in text] == [invariant], told


@pytest.mark.parametrize(
    ("row", "changes", "says"),
    [
        (3, {"value": 0.01}, "row 3 says 0.01 at update 10, and its history"),
        (
            3,
            {"value": None, "at": None, "checkpoint": None},
            "row 3 says None at update None, and its history",
        ),
        (3, {"update": 9}, "row 3 ended at update 9, and trial-003 has 10"),
        (5, {"update": 3}, "row 5 ended at update 3, and trial-005 has 4"),
        (5, {"value": 0.5}, "row 5 says 0.5 at update None, and its history"),
        (8, {"value": 0.5, "at": 40}, "row 8 says 0.5 at update 40, and its history None at None"),
    ],
)
def test_a_value_that_its_run_does_not_have_is_found(
    objects: dict[str, bytes], row: int, changes: dict[str, Any], says: str
) -> None:
    # covers RAY-14, I4
    told = found(retold(objects, where(RowEnded, row, **changes)))
    assert ("I4", says) in [(number, text.partition(": ")[2][: len(says)]) for number, text in told], told


def test_a_row_without_its_run_is_found(objects: dict[str, bytes]) -> None:
    gone = {key: data for key, data in objects.items() if "/runs/trial-004/" not in key}
    told = found(gone)
    assert ("I1", "a row ends as its run has it: row 4 had 1 attempts, and has no run") in told


def test_a_run_with_another_setting_is_found(objects: dict[str, bytes]) -> None:
    # covers I14
    key = layout.run_record(NAME, "trial-004")
    record = RunRecord.from_bytes(objects[key], key)
    assert record.setting is not None
    other = record.model_copy(update={"setting": record.setting.model_copy(update={"seed": 99})})
    finds({**objects, key: other.to_bytes()}, "I14", "a trial has the setting of its row: trial-004 has")


def test_what_is_learned_of_a_cost_later_is_no_fault(objects: dict[str, bytes]) -> None:
    # covers RAY-13: an invoice is a fact, and the row says what the ledger had when it ended
    store = MemoryStore(dict(objects))
    ledger = Ledger(store, "corp-lm", by="mira")
    ledger.refresh()
    lease = next(x.reserved.lease for x in ledger.book.leases.values() if x.reserved.run == "trial-004")
    ledger.decide(lambda book: Corrected(lease=lease, cost=7, reason="invoice", person="mira"), at=3e9)
    assert found(store.objects) == []


def test_money_of_a_trial_that_is_no_row_is_found() -> None:
    # covers I6
    store = MemoryStore()
    maker = SearchMaker(store, trials=2, top=0)
    maker.register()
    run_row(maker, 1)
    ledger = maker.runs[1].ledger
    paid = next(iter(ledger.book.leases.values())).reserved
    stray = paid.model_copy(update={"lease": "stray-1", "run": "trial-013", "charged": ledger.book.charged})
    ledger.decide(lambda book: stray, at=3e9)
    finds(store.objects, "I6", "trial-013 is none")


# --- what is picked ---------------------------------------------------------------------------------------------


def test_a_pick_that_is_not_what_the_table_comes_to_is_found(objects: dict[str, bytes]) -> None:
    # covers RAY-14, I8
    def other(event: Record) -> Sequence[Record]:
        return [event.model_copy(update={"row": 1})] if isinstance(event, Picked) else [event]

    def silent(event: Record) -> Sequence[Record]:
        return [event.model_copy(update={"excluded": ()})] if isinstance(event, Picked) else [event]

    finds(retold(objects, other), "I8", "the pick is the best of what was completed: row 1")
    finds(retold(objects, silent), "I8", "the pick is the best of what was completed")


def candidate(objects: dict[str, bytes], row: int) -> dict[str, bytes]:
    """The store, with the pick registered as the checkpoint of a row."""

    def named(event: Record) -> Sequence[Record]:
        return [event.model_copy(update={"candidate": "lr-pick"})] if isinstance(event, Picked) else [event]

    ends = [
        event
        for entry in Log(MemoryStore(dict(objects)), LOG, SearchEntry, by="r").refresh()
        for event in entry.events
        if isinstance(event, RowEnded) and event.row == row
    ]
    store = MemoryStore(retold(objects, named))
    if row:
        (event,) = ends
        assert event.checkpoint is not None and event.at is not None
        said = Registered(
            candidate="lr-pick",
            role="search-checkpoint",
            origin="run",
            manifest=event.checkpoint,
            key=layout.checkpoint(NAME, f"trial-{row:03d}", event.at, 1, MANIFEST),
            experiment=NAME,
            update=event.at,
            history="kept",
            person="raykit",
        )
        register(store, said, at=3e9)
    return store.objects


def test_what_is_picked_is_the_candidate_of_that_name(objects: dict[str, bytes]) -> None:
    # covers TUNE-11, I1, I8
    assert found(candidate(objects, 4)) == []
    finds(candidate(objects, 1), "I8", "lr-pick is not the checkpoint of row 4")
    finds(candidate(objects, 0), "I1", "what is picked is registered: lr-pick is not")


# --- while it runs ----------------------------------------------------------------------------------------------


def test_no_false_alarm_while_a_search_goes_on() -> None:
    # covers I12: at any moment of it rows end and begin, a budget ends one, and a person goes on
    start = MemoryStore()
    make_going(start)
    counting = FaultStore(MemoryStore(dict(start.objects)))
    check(counting, read_data=True)
    count = len(counting.fault.operations)
    for at in range(1, count + 1, 7):
        store = MemoryStore()
        maker = make_going(store)

        def act(maker: SearchMaker = maker) -> None:
            maker.train(4, 10)
            maker.finish(4, "censored-by-budget")
            maker.finish(5, "failed")
            maker.reopen()
            maker.begin(4)
            maker.train(4, 10)
            run_row(maker, 6)

        report = check(FaultStore(store, Fault(act, at=at)), read_data=True)
        assert report.findings == (), (at, report.findings)
    print(f"{len(range(1, count + 1, 7))} of {count} moments")


def test_every_edited_byte_of_a_table_is_found(objects: dict[str, bytes]) -> None:
    # covers I12, I2
    data = objects[TABLE]
    for at in range(0, len(data), 23):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        told = found({**objects, TABLE: changed}, read_data=False)
        assert [number for number, _ in told] == ["I2"], (at, told)


def test_the_contents_of_a_report_name_the_invariant(objects: dict[str, bytes]) -> None:
    broken = MemoryStore(retold(objects, where(RowEnded, 4, cost=1)))
    with pytest.raises(
        CorruptError, match="I6  a row costs what the ledger says of its run: row 4 has cost 1"
    ):
        check_invariants(broken)
