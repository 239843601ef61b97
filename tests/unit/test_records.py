"""Records: one strict spelling, whatever is thrown at the reader."""

from __future__ import annotations

import json
import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raykit import records
from raykit.errors import CorruptError
from raykit.ids import MAX_JSON_BYTES, canonical, sha256
from raykit.records import (
    LARGEST,
    AccountEntry,
    AccountOf,
    AccountOpened,
    Accrued,
    Adopted,
    AdoptedFile,
    Amended,
    Approved,
    AttemptEnded,
    AttemptStarted,
    Beat,
    Begun,
    CanaryPassed,
    Cancelled,
    CandidatesEntry,
    Closed,
    Column,
    Commit,
    Compared,
    Concluded,
    Contracted,
    Corrected,
    Drawn,
    Driven,
    EvaluationRow,
    Excluded,
    ExperimentEntry,
    FieldStats,
    FileRef,
    FirstDifference,
    FleetEntry,
    Freed,
    GateResult,
    Generated,
    GenerationContract,
    GivenUp,
    Harmless,
    Held,
    InputChunk,
    InputsManifest,
    Launched,
    LetGo,
    Line,
    Locked,
    Manifest,
    Measured,
    MonitorRow,
    Noted,
    Observed,
    Option,
    Parted,
    Paused,
    Picked,
    Pinned,
    Place,
    Planned,
    Rated,
    Record,
    Registered,
    Released,
    Reopened,
    Repaired,
    Replanned,
    Replaying,
    Reserved,
    RestartApproved,
    Resumed,
    Retried,
    Reuse,
    Reviewed,
    Row,
    RowEnded,
    Rows,
    RowsCounted,
    Ruled,
    RunEntry,
    RunRecord,
    SearchEntry,
    SearchRegistration,
    Segment,
    SetFinding,
    SetManifest,
    Setting,
    Settled,
    SetUnits,
    StopRequested,
    Superseded,
    TableRow,
    TermRow,
    Terms,
    Undeclared,
    UnitReceipt,
    Unreplayed,
    Voided,
)

D = sha256(b"one")
PLACE = Place(host="n1", boot="b", pid=7, started=11)
TERM = TermRow(value=0.061, weight=1.0, contribution=0.061, elements=4096, target_ms=0.28, ratio=0.218)
ROW = Row(
    attempt=1,
    update=12,
    epoch=0,
    samples=(704, 768),
    sources={"0": 28, "1": 36},
    loss=0.41,
    terms={"recon": TERM},
    lr=(0.001,),
    grad_norm=0.93,
    clipped=False,
    elapsed_s=0.42,
)
BROKEN_ROW = ROW.model_copy(
    update={
        "loss": None,
        "grad_norm": None,
        "terms": {"recon": TERM.model_copy(update={"value": None, "contribution": None, "ratio": None})},
        "nonfinite": ("loss", "grad_norm", "recon"),
    }
)
EVENTS = (
    Launched(launch="l1", place=PLACE, lease_s=60.0, raykit="0.1.0"),
    AttemptStarted(
        attempt=1, launch="l1", place=PLACE, world_size=1, facts={"torch": "2"}, plan=D, code=D, data=D
    ),
    GateResult(gate="first", key=D, passed=True, scope="s", found="f", took_s=0.5),
    Compared(
        how="overlap",
        attempt=2,
        against=1,
        first=3,
        last=5,
        rows=3,
        difference=FirstDifference(update=3, what="loss", was="0.5", now="0.25"),
        lowers="inexact",
    ),
    Replaying(attempt=2, first=4, last=5, worker="qc-1", place=PLACE, lease="l"),
    Unreplayed(attempt=2, first=4, last=5, why="it was stopped", took_s=0.5),
    Undeclared(attempt=1, update=5, names=("recipe.calls",), lowers="inexact"),
    Segment(series="train", attempt=1, first=1, last=2, key="k/x", sha256=D, size_bytes=5),
    Commit(
        update=2,
        attempt=1,
        key="k/manifest.json",
        sha256=D,
        size_bytes=9,
        exactness="exact",
        reason="cadence",
        save_s=0.1,
        blocked_s=0.0,
    ),
    Superseded.model_validate({"from": 2, "to": 2, "why": "w"}),
    AttemptEnded(attempt=1, reason="paused", update=2),
    Beat(launch="l1"),
    StopRequested(launch="l1", why="w"),
    Released(launch="l1", reason="paused"),
)
FIRST = RunEntry(n=1, prev=None, at=1.5, by="w", nonce="a", events=EVENTS[:1])
SECOND = RunEntry(n=2, prev=D, at=2.5, by="w", nonce="b", events=EVENTS[1:])
LOCKED = Locked(plan=D, contract=D, code=D, environment=D, data=D)
PAUSED = Paused(scope="experiment:e", cause="person", reason="r", person="mira")
RESUMED = Resumed(scope="experiment:e", cleared="c", person="mira")
ROWS = Rows(requested=6, produced=3, filtered=1, failed=2)
ACTS = (
    LOCKED,
    Amended(run="r", allows="order-exact", reason="w", differences=D),
    RestartApproved(projection=D, covers="c", reason="r", person="mira"),
    Harmless(names=("recipe.calls",), reason="a log counter", person="mira"),
    Repaired(what="w", attempt=2, person="mira"),
    PAUSED,
    RESUMED,
    Cancelled(reason="r", person="mira"),
    Observed(
        plan=D,
        test="t",
        saw="s",
        supports=("a", "b"),
        removed=("c",),
        next="n",
        covers={"rows": "128"},
        note="w",
        hypotheses={"a": "x", "b": "y"},
        predicts={"a": "p", "b": "p"},
        next_by={"a": "n", "b": "n"},
        person="mira",
    ),
    Concluded(outcome="unresolved", says="s", effect="e", decision=D, contract=D, update=3, person="mira"),
    Noted(kind="incident", says="s", person="mira"),
    Measured(what="update", pool="train", time_ms=9, units=3, memory_bytes={"model": 5}, how="h"),
    RowsCounted(source="s3://b/k@v1", rows=3, digest=D, how="h", person="mira"),
    Reviewed(receipts=(D,), verdict="passed", note="n", person="mira", scripted=True),
    Retried(request=D, after=3, reason="r", person="mira"),
    Pinned(run="r", update=4, manifest=D, reason="r", person="mira"),
    Contracted(
        name="s",
        contract=D,
        candidate="c",
        update=4,
        key="k",
        scripted=False,
        options=(
            Option(
                name="decode",
                decode={"temperature": 0.5},
                rows=4,
                produced=3,
                took_ms=9,
                quality={"error": None},
                whole_ms=90,
                whole_cost=7,
            ),
        ),
        surface="development",
        why="w",
        person="mira",
    ),
    CanaryPassed(
        name="s",
        contract=D,
        units=2,
        rows=ROWS,
        counts={"empty": 1},
        took_ms=9,
        peak_bytes=5,
        whole_ms=90,
        low_ms=80,
        high_ms=100,
        worst_cost=7,
    ),
    GivenUp(name="s", contract=D, units=(3,), reason="r", person="mira"),
    Generated(name="s", contract=D, manifest=D, rows=ROWS, by="l1"),
)
REGISTERED = (
    Registered(
        candidate="c", role="base", origin="adopted", manifest=D, key="k", history="absent", person="mira"
    ),
)
TERMS = Terms(accelerators=8, rate=2_490_000, source="s", margin_permille=1100, time_ms=9, drain_ms=1)
LINES = (
    Line(line="train", purpose="target", planned=3),
    Line(line="compare", purpose="comparison", planned=4, arms={"a": 2, "b": 2}),
)
MONEY = (
    AccountOpened(account="a", unit="usd", why="w"),
    Parted(experiment="e", account="a", reason="r", person="mira"),
    Planned(experiment="e", plan=D, decision=D, ceiling=7, lines=LINES, rates={"train": 2}, expected=5),
    Approved(scope="account", covers=7, person="mira"),
    Approved(scope="plan", covers=7, experiment="e", projection=D, reason="r", person="mira", scripted=True),
    Rated(pool="h100", rate=2_490_000, source="s", on="2026-11-29", person="mira"),
    Reserved(lease="l1-1", experiment="e", line="train", worst=3, terms=TERMS, charged=0, below=5),
    Reserved(
        lease="l2-1",
        experiment="e",
        line="train",
        worst=3,
        terms=TERMS,
        charged=3,
        below=9,
        run="trial-002",
    ),
    Accrued(lease="l1-1", cost=1, worst=4, time_ms=10),
    Settled(lease="l1-1", cost=2, time_ms=9, reason="completed", how="h"),
    Settled(lease="l1-1", cost=2, time_ms=9, reason="killed", how="h", person="mira"),
    Voided(lease="l1-1", proof="p"),
    Corrected(lease="l1-1", cost=3, reason="r", person="mira"),
    Replanned(experiment="e", ceiling=7, lines=LINES, rates={}, reason="r", person="mira"),
    Held(experiment="e", pool="h100", accelerators=8, rate=2),
    Freed(experiment="e", pool="h100", cost=2, how="h"),
    Closed(experiment="e", reason="r", person="mira"),
)
CONTRACT = GenerationContract(
    experiment="e",
    name="s",
    teacher=D,
    recipe="r:R",
    params={"width": 3},
    code=D,
    decode={},
    seed=0,
    revision=1,
    dtype="float32",
    autocast="none",
    deterministic=True,
    threads=1,
    batch_rows=2,
    inputs=D,
    samples=2,
    rows=6,
    unit_rows=6,
    columns=(Column(name="row", type="int64"),),
    bounds={"empty": 0.25},
    facts={"torch": "2"},
    follows=D,
    reuses=Reuse(contract=D, units=((0, 3), (5, 5))),
)
SEARCHED = (
    Driven(driver="d1", place=PLACE, raykit="0.1.0"),
    LetGo(driver="d1"),
    Drawn(row=2, params={"lr": 0.1, "size": [1, 2]}, by="optuna.tpe"),
    Drawn(row=3, params={"lr": 0.1}, by="rank 1", repeats=2),
    Begun(row=2, launch="l1", place=PLACE),
    Ruled(row=2, update=4, value=0.5, why="w"),
    RowEnded(row=2, end="stopped-by-scheduler", update=5, value=0.5, at=4, checkpoint=D, cost=3, attempts=1),
    RowEnded(row=3, end="never-started", update=0, cost=0, attempts=0, detail="w"),
    Reopened(rows=(2,), reason="r", person="mira"),
    Picked(
        row=1,
        value=0.25,
        values=(0.25, 0.25),
        tried=3,
        ranked=(1,),
        excluded=(Excluded(row=2, why="w"),),
        candidate="c",
    ),
)
TABLE = SearchRegistration(
    experiment="e",
    search="main",
    plan=D,
    contract=D,
    code=D,
    data=D,
    hypothesis="h",
    predicts="p",
    metric="development.ratio",
    mode="min",
    sampler={"name": "optuna.tpe", "seed": 7},
    scheduler={"name": "asha", "grace_updates": 2, "reduction": 3},
    space={"lr": {"loguniform": [0.1, 1.0]}},
    concurrent=2,
    updates=8,
    attempts=2,
    unit="usd",
    row_worst=3,
    total_worst=9,
    rows=(
        TableRow(row=1, seed=1, params={"lr": 0.5}),
        TableRow(row=2, seed=1),
        TableRow(row=3, kind="repeat", seed=2, rank=1),
    ),
)
RECORDS: tuple[Record, ...] = (
    FIRST,
    SECOND,
    ROW,
    BROKEN_ROW,
    ExperimentEntry(n=1, prev=None, at=0.0, by="w", nonce="c", events=ACTS),
    FleetEntry(n=1, prev=None, at=0.0, by="w", nonce="c", events=(PAUSED, RESUMED)),
    AccountEntry(n=2, prev=D, at=0.0, by="w", nonce="c", events=MONEY),
    AccountOf(account="a", experiment="e"),
    CandidatesEntry(n=1, prev=None, at=0.0, by="w", nonce="c", events=REGISTERED),
    Adopted(
        files=(AdoptedFile(name="model.safetensors", sha256=D, size_bytes=3, holds="model"),),
        tensors=1,
        elements=3,
    ),
    EvaluationRow(attempt=1, update=0, rows=3, metrics={"a": None, "b": 1.0}, elapsed_s=0.1, best=False),
    MonitorRow(
        attempt=1,
        update=2,
        fields={"z": FieldStats(space="log", median=None, low=None, high=None, spread=None, collapsed=True)},
        elapsed_s=0.1,
    ),
    Manifest(
        update=2,
        samples=128,
        world_size=1,
        files=(FileRef(name="model.safetensors", sha256=D, size_bytes=3, holds="model", rank=0),),
        history_update=2,
        contract=D,
        data=D,
        code=D,
    ),
    RunRecord(experiment="e", run="r", plan=D, contract=D, code=D, environment=D, data=D),
    RunRecord(
        experiment="e",
        run="trial-002",
        plan=D,
        contract=D,
        code=D,
        environment=D,
        data=D,
        setting=Setting(params={"lr": 0.1}, seed=1),
    ),
    TABLE,
    SearchEntry(n=1, prev=None, at=0.0, by="w", nonce="c", events=SEARCHED),
    CONTRACT,
    UnitReceipt(
        contract=CONTRACT.digest,
        unit=1,
        rows=ROWS,
        filtered={"dull": 1},
        failed={"nonfinite": 2},
        failed_rows=(7, 9),
        counts={"empty": 1},
        contents="Zm9vYmFyMTI=",
        sha256=D,
        size_bytes=3,
        reused=D,
        given_up="w",
    ),
    SetManifest(
        experiment="e",
        name="s",
        contract=CONTRACT.digest,
        teacher=D,
        rows=ROWS,
        filtered={"dull": 1},
        failed={"nonfinite": 2},
        findings=(SetFinding(kind="empty", found=1, of=3, bound=0.25),),
        columns=CONTRACT.columns,
        scripted=True,
        size_bytes=3,
        units=SetUnits(receipts=(D,), sha256=(D,), size_bytes=(3,), produced=(3,)),
    ),
    InputsManifest(
        source="i.csv",
        rows=3,
        columns=(Column(name="id", type="string"),),
        chunks=(InputChunk(rows=3, sha256=D, size_bytes=9),),
        too_large=(2,),
    ),
)
IDS = [f"{type(record).__name__}-{i}" for i, record in enumerate(RECORDS)]


def test_every_event_is_tried() -> None:
    for union, tried in (
        (records.RunEvent, EVENTS),
        (records.ExperimentEvent, ACTS),
        (records.FleetEvent, (PAUSED, RESUMED)),
        (records.AccountEvent, MONEY),
        (records.SearchEvent, SEARCHED),
    ):
        assert {type(event) for event in tried} == set(get_args(get_args(union)[0]))


@pytest.mark.parametrize("record", RECORDS, ids=IDS)
def test_what_is_written_is_read_back(record: Record) -> None:
    data = record.to_bytes()
    again = type(record).from_bytes(data, "it")
    assert again == record
    assert again.to_bytes() == data
    assert data == canonical(json.loads(data))


def test_a_null_that_means_something_is_written() -> None:
    assert json.loads(FIRST.to_bytes())["prev"] is None
    row = json.loads(BROKEN_ROW.to_bytes())
    assert row["loss"] is None
    assert row["terms"]["recon"]["value"] is None
    assert "ratio" not in row["terms"]["recon"]
    assert "scale" not in row


@pytest.mark.parametrize("record", RECORDS, ids=IDS)
def test_every_truncation_is_refused(record: Record) -> None:
    data = record.to_bytes()
    for length in range(0, len(data), 7):
        with pytest.raises(CorruptError):
            type(record).from_bytes(data[:length], "it")


def changed(**changes: object) -> bytes:
    return canonical({**ROW.plain(), **changes})


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (changed(extra=1), "extra"),
        (changed(schema=2), "schema"),
        (changed(schema=True), "schema"),
        (changed(attempt=0), "attempt"),
        (changed(attempt=True), "attempt"),
        (changed(attempt="1"), "attempt"),
        (changed(update=12.0), "update"),
        (changed(samples=[704]), "samples.1"),
        (changed(loss="0.4"), "loss"),
        (canonical({k: v for k, v in ROW.plain().items() if k != "schema"}), ""),
        (canonical({k: v for k, v in ROW.plain().items() if k != "loss"}), "loss"),
        (ROW.to_bytes().replace(b'"loss":0.41', b'"loss":NaN'), None),
        (ROW.to_bytes().replace(b'"loss":0.41', b'"loss":1e400'), "loss"),
        (ROW.to_bytes().replace(b'"loss":0.41', b'"loss":0.41,"loss":0.4'), None),
        (ROW.to_bytes().replace(b'"epoch":0', b'"epoch":' + b"9" * 1_000_000), None),
        (b"[" * 100_000, None),
        (b"\xff\xfe", None),
        (b"\xef\xbb\xbf" + ROW.to_bytes(), None),
        (b"", None),
        (b"null", ""),
        (SECOND.to_bytes(), None),
    ],
)
def test_a_row_that_is_not_one_is_refused_by_name(data: bytes, field: str | None) -> None:
    with pytest.raises(CorruptError, match=r"^it is not ") as refused:
        Row.from_bytes(data, "it")
    if field is not None:
        assert refused.value.field == field


@pytest.mark.parametrize("digest", [D.upper(), D[:-1], D + "0", "sha256:" + D])
def test_a_digest_has_one_spelling(digest: str) -> None:
    with pytest.raises(CorruptError, match="plan"):
        Locked.from_bytes(canonical({**LOCKED.plain(), "plan": digest}), "it")


def test_only_json_names_are_read() -> None:
    with pytest.raises(CorruptError, match="from"):
        Superseded.from_bytes(b'{"event":"superseded","from_":3,"to":4,"why":"w"}', "it")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rows": []}, "rows"),
        ({"rows": [TABLE.rows[1].plain()]}, "numbered from 1"),
        ({"rows": [{**TABLE.rows[0].plain(), "rank": 1}]}, "has a rank"),
        ({"rows": [{**TABLE.rows[0].plain(), "kind": "repeat"}]}, "has a rank"),
        ({"mode": "least"}, "mode"),
        ({"concurrent": 0}, "concurrent"),
        ({"row_worst": -1}, "row_worst"),
    ],
)
def test_a_table_that_is_none_is_refused(changes: dict[str, object], says: str) -> None:
    # covers TUNE-05
    with pytest.raises(CorruptError, match=says):
        SearchRegistration.from_bytes(canonical({**TABLE.plain(), **changes}), "it")


def test_events_say_what_they_are() -> None:
    plain = SECOND.plain()
    del plain["events"][0]["event"]
    with pytest.raises(CorruptError, match=r"events\.0"):
        RunEntry.from_bytes(canonical(plain), "it")


def test_only_the_first_entry_has_no_prev() -> None:
    for record in (FIRST, SECOND):
        with pytest.raises(CorruptError, match="prev"):
            RunEntry.from_bytes(canonical({**record.plain(), "n": 3 - record.n}), "it")


def test_a_segment_runs_forward() -> None:
    with pytest.raises(CorruptError, match="before"):
        segment = next(event for event in EVENTS if isinstance(event, Segment))
        Segment.from_bytes(canonical({**segment.plain(), "first": 3}), "it")


# --- people and money ---------------------------------------------------------------------------------------

BY_NAME = {type(event).__name__: event for event in (*ACTS, *MONEY)}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Reserved", {"worst": -1}),
        ("Reserved", {"worst": LARGEST + 1}),
        ("Reserved", {"worst": 0.5}),
        ("Reserved", {"worst": True}),
        ("Reserved", {"worst": "3"}),
        ("Reserved", {"worst": None}),
        ("Reserved", {"lease": "../x"}),
        ("Reserved", {"lease": ""}),
        ("Reserved", {"terms": {**TERMS.plain(), "margin_permille": 999}}),
        ("Reserved", {"terms": {**TERMS.plain(), "rate": -1}}),
        ("Settled", {"time_ms": -1}),
        ("Settled", {"time_ms": 10**12 + 1}),
        ("Settled", {"reason": "lost"}),
        ("Planned", {"lines": [{**LINES[1].plain(), "planned": 5}]}),
        ("Planned", {"lines": [{**LINES[0].plain(), "purpose": "fun"}]}),
        ("Approved", {"experiment": "e"}),
        ("Approved", {"scope": "plan"}),
        ("Approved", {"covers": -1}),
        ("AccountOpened", {"unit": "eur"}),
        ("AccountOpened", {"account": "A"}),
        ("Rated", {"on": "29.11.2026"}),
        ("Paused", {"scope": "role:everything"}),
        ("Paused", {"scope": "experiment:../x"}),
        ("Paused", {"scope": "contract:abc"}),
        ("Paused", {"scope": "all "}),
        ("Paused", {"cause": "mood"}),
        ("Paused", {"reason": ""}),
        ("Paused", {"reason": " \n"}),
        ("Paused", {"person": ""}),
        ("Cancelled", {"person": " "}),
        ("Resumed", {"cleared": ""}),
        ("Repaired", {"what": "x" * 2001}),
    ],
)
def test_an_act_that_is_none_is_refused(name: str, changes: dict[str, object]) -> None:
    # covers S15: who and why are never empty
    event = BY_NAME[name] if name != "Approved" else MONEY[3]
    type(event).from_bytes(event.to_bytes(), "it")
    with pytest.raises(CorruptError, match=f"^it is not a {name} record"):
        type(event).from_bytes(canonical({**event.plain(), **changes}), "it")


def test_every_act_of_a_person_says_who() -> None:
    # covers S15
    for event in (*ACTS, *MONEY, *REGISTERED, *SEARCHED):
        fields = type(event).model_fields
        if "reason" in fields and "time_ms" not in fields and "run" not in fields:
            assert "person" in fields, type(event)
        if "person" in fields:
            measured = isinstance(event, Settled | Measured | RowsCounted)  # also by raykit itself
            assert fields["person"].is_required() or measured


def test_an_account_of_says_its_schema() -> None:
    for data in (b'{"account":"a","experiment":"e"}', b'{"account":"a","experiment":"e","schema":2}'):
        with pytest.raises(CorruptError, match="schema"):
            AccountOf.from_bytes(data, "it")


@pytest.mark.parametrize("seed", range(4))
def test_no_mutation_passes_unseen_or_untyped(seed: int) -> None:
    """A mutated record is refused, or is another record; nothing else may happen."""
    rng = random.Random(seed)
    print("seed", seed)
    for _ in range(2500):
        record = rng.choice(RECORDS)
        data = bytearray(record.to_bytes())
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[place] = rng.randrange(256)
                case 1:
                    del data[place : place + rng.randint(1, 9)]
                case 2:
                    data[place:place] = rng.choice([b'"', b"{", b"0", b"\\u0000", b"-", b"e9", b",", b"null"])
                case _:
                    data[place:place] = data[place : place + rng.randint(1, 30)]
            if not data:
                data = bytearray(b" ")
        try:
            again = type(record).from_bytes(bytes(data), "it")
        except CorruptError:
            continue
        assert type(record).from_bytes(again.to_bytes(), "it") == again


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**63 - 1), st.text(max_size=20))
def test_numbers_and_text_come_back_to_the_bit(number: float, count: int, text: str) -> None:
    event = AttemptEnded(attempt=count + 1, reason="failed", update=count, detail=text)
    try:
        data = event.to_bytes()
    except UnicodeEncodeError:
        assert any(0xD800 <= ord(c) < 0xE000 for c in text)
        return
    assert AttemptEnded.from_bytes(data, "it") == event
    beat = RunEntry(n=1, prev=None, at=number, by="w", nonce="n", events=(event,))
    assert RunEntry.from_bytes(beat.to_bytes(), "it").at.hex() == number.hex()


def test_a_manifest_of_very_many_units_can_be_read_again() -> None:
    """Half a million of them are more than any other record may have."""
    n = 500_000
    units = SetUnits(
        receipts=("a" * 64,) * n, sha256=("b" * 64,) * n, size_bytes=(1000,) * n, produced=(10,) * n
    )
    rows = Rows(requested=10 * n, produced=10 * n, filtered=0, failed=0)
    manifest = SetManifest(
        experiment="digits",
        name="many",
        contract="1" * 64,
        teacher="2" * 64,
        rows=rows,
        columns=(),
        size_bytes=1000 * n,
        units=units,
    )
    data = manifest.to_bytes()
    assert len(data) > MAX_JSON_BYTES
    assert SetManifest.from_bytes(data, "it") == manifest
