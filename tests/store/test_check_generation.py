"""`check` and synthetic sets: every seeded corruption is found, no false alarm, and a crash leaves at most orphans."""

from __future__ import annotations

import base64
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from makeset import SetMaker, make_set

from raykit.cli.checklook import report_lines
from raykit.data.inputs import cut_inputs
from raykit.ids import sha256
from raykit.records import (
    Contracted,
    Generated,
    GenerationContract,
    GivenUp,
    Record,
    Retried,
    Reuse,
    Rows,
    Took,
    UnitReceipt,
)
from raykit.shards.units import unit_id
from raykit.store import layout
from raykit.store.attempts import sealed
from raykit.store.base import Listed
from raykit.store.check import Finding, Report, check
from raykit.store.contents import contents_of, own_columns
from raykit.store.generation import Shards
from raykit.store.inputs import chunk_key, freeze_inputs
from raykit.store.parquet import parquet_bytes
from raykit.store.progress import read_progress, write_snapshot
from raykit.testing import Fault, FaultStore, MemoryStore
from raykit.testing.invariants import check_invariants

INPUTS = cut_inputs(
    pa.table({"id": [f"i-{n}" for n in range(40)], "text": ["t"] * 40}),
    "inputs.csv",
    input_bytes=1000,
    at="generate.digits.inputs",
    chunk_bytes=80,
)


class Maker(SetMaker):
    """Its receipts tell the contents of their rows, and its sets have inputs that are there."""

    inputs = "i"

    def contract_of(self, **traits: Any) -> GenerationContract:
        freeze_inputs(self.store, self.experiment, *INPUTS)
        return super().contract_of(**{"inputs": INPUTS.manifest.digest, **traits})

    def unit_receipt(self, unit: int, **how: Any) -> tuple[UnitReceipt, bytes]:
        receipt, data = super().unit_receipt(unit, **how)
        shape = {name: how[name] for name in ("filtered", "failed") if name in how}
        contents = base64.b64encode(contents_of(own_columns(self.table(unit, **shape)))).decode()
        return receipt.model_copy(update={"contents": contents}), data


def maker_of(store: MemoryStore, **traits: Any) -> Maker:
    made = make_set(store, contract=False)
    maker = Maker(store)
    maker.__dict__.update(made.__dict__)
    maker.contract_now(**traits)
    return maker


def conflict(maker: Maker, unit: int, n: int) -> None:
    """Attempt `n`, which is claimed, makes another receipt than the one that decided."""
    receipt, _ = maker.unit_receipt(unit)
    data = parquet_bytes(maker.table(unit).slice(0, 3))
    rows = Rows(requested=4, produced=3, filtered=0, failed=1)
    other = receipt.model_copy(
        update={"rows": rows, "failed": {"x": 1}, "sha256": sha256(data), "size_bytes": len(data)}
    )
    assert maker.shards.publish(other, data, n=n, worker="gen-2") == "conflict"


def lively(maker: Maker) -> None:
    """Everything that may come of a unit: attempts that failed, a conflict, rows that failed, what is given up."""
    maker.publish(0, 1)
    maker.canary()
    maker.publish(2, filtered=1, failed=1)
    maker.fail_unit(3)
    maker.publish(3)
    maker.fail_unit(4, worker="gen-2", message="late")
    maker.publish(4)
    conflict(maker, 4, 1)
    maker.park(5)
    maker.tell(
        Retried(request=unit_id(maker.shards.digest, 5), after=3, reason="a repair", person="mira"),
    )
    maker.fail_unit(5)
    give_up(maker, 5)


def give_up(maker: Maker, *units: int, told: bool = True) -> None:
    if told:
        event = GivenUp(
            name="digits", contract=maker.shards.digest, units=units, reason="no more", person="mira"
        )
        maker.tell(event)
    maker.shards.give_up(units, "no more")


def followed(maker: Maker, *units: int, **traits: Any) -> Shards:
    """Another contract, which reuses units of the one that there was."""
    old = maker.shards
    spans = tuple((unit, unit) for unit in units)
    maker.contract_now(
        why="a repair",
        **{"seed": 1, "follows": old.digest, "reuses": Reuse(contract=old.digest, units=spans), **traits},
    )
    maker.shards.reuse(old, units)
    return old


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    store = MemoryStore()
    maker = maker_of(store)
    lively(maker)
    followed(maker, 0, 2)
    maker.canary()
    maker.publish(1)
    maker.finish()
    write_snapshot(maker.shards, read_progress(maker.shards))
    store.put_derived(layout.generation_picture("digits", "digits", "samples.png"), b"PNG")
    return store.objects


def kind_of(key: str) -> str | None:
    known = layout.known(key)
    assert known is not None
    ours = known.kind.startswith("generation-") or known.kind == "inputs"
    return known.kind if ours and known.kind not in layout.DERIVED else None


def by_kind(objects: dict[str, bytes]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in sorted(objects):
        kind = kind_of(key)
        if kind is not None:
            found.setdefault(kind, []).append(key)
    return found


def findings(objects: dict[str, bytes], *, read_data: bool = True) -> tuple[Finding, ...]:
    return check(MemoryStore(objects), read_data=read_data).findings


def rules(store: Any, *, read_data: bool = True) -> list[str]:
    return sorted({finding.rule for finding in check(store, read_data=read_data).findings})


# --- no false alarm -------------------------------------------------------------------------------------------


def test_a_clean_root_has_no_findings(objects: dict[str, bytes]) -> None:
    # covers I12
    assert {kind: len(keys) for kind, keys in by_kind(objects).items()} == {
        "generation-claim": 19,
        "generation-conflict": 1,
        "generation-contract": 2,
        "generation-data": 17,
        "generation-failure": 6,
        "generation-manifest": 1,
        "generation-receipt": 16,
        "inputs": 4,
    }
    for read_data in (False, True):
        report = check(MemoryStore(dict(objects)), read_data=read_data)
        assert (report.findings, report.orphans, report.stranded, report.unknown) == ((), (), (), ())
        counts = {name: report.counts[name] for name in ("sets", "units", "conflicts", "inputs")}
        assert counts == {"sets": 2, "units": 16, "conflicts": 1, "inputs": 1}


@pytest.mark.parametrize("seed", range(6))
def test_no_false_alarm_at_any_moment(seed: int) -> None:
    """After every single write of a set that is made, with crashes in between, no promise is broken."""
    # covers F2, I12
    rng = random.Random(seed)
    store = MemoryStore()

    class Looked(FaultStore):
        def put_new(self, key: str, data: Any) -> Any:
            stored = self.inner.put_new(key, data)
            if rng.random() < 0.15:
                report = check(MemoryStore(dict(store.objects)), read_data=rng.random() < 0.3)
                assert report.findings == (), key
            return stored

    maker = maker_of(Looked(store))  # type: ignore[arg-type]
    lively(maker)
    old = followed(maker, *rng.sample(range(6), rng.randrange(1, 4)))
    maker.publish(*rng.sample(sorted(set(range(10)) - set(maker.shards.published().tolist())), 2))
    if rng.random() < 0.5:
        maker.finish()
    assert old.manifest() is None
    report = check(store, read_data=True)
    assert (report.findings, report.orphans) == ((), ())


def test_what_a_killed_attempt_leaves_is_an_orphan() -> None:
    # covers F2, GOLD-29
    maker = maker_of(MemoryStore())
    maker.publish(0)
    maker.take_unit(1)
    receipt, data = maker.unit_receipt(1)
    maker.store.put_new(maker.shards.data_key(receipt), data)
    report = check(maker.store, read_data=True)
    assert report.findings == ()
    assert [listed.key for listed in report.orphans] == [maker.shards.data_key(receipt)]
    maker.store.objects[maker.shards.data_key(receipt)] = data[:-1] + b"?"  # type: ignore[attr-defined]
    assert rules(maker.store) == ["an object is what its name says"]


def test_a_launch_that_was_killed_before_its_contract_counted_leaves_orphans() -> None:
    # covers F2
    maker = maker_of(MemoryStore())
    other = Shards(maker.store, maker.contract_of(seed=5))
    other.freeze()
    more = cut_inputs(pa.table({"id": ["only"]}), "b.csv", input_bytes=9, at="generate.digits.inputs")
    freeze_inputs(maker.store, "digits", *more)
    report = check(maker.store, read_data=True)
    assert report.findings == ()
    assert {kind_of(listed.key) for listed in report.orphans} == {"generation-contract", "inputs"}
    assert len(report.orphans) == 3


def test_a_set_that_was_closed_but_not_told_of_is_no_fault() -> None:
    # covers F2
    maker = maker_of(MemoryStore())
    maker.publish(*range(10))
    maker.close(told=False)
    report = check(maker.store, read_data=True)
    assert (report.findings, report.orphans) == ((), ())


def test_a_store_that_changes_meanwhile_is_no_fault() -> None:
    """Everything after the listing is newer than the listing."""

    class Moving(MemoryStore):
        moved = False
        ready = False

        def list(self, prefix: str) -> Iterator[Listed]:
            found = list(super().list(prefix))
            if prefix == "" and self.ready and not self.moved:
                self.moved = True
                lively(maker)
                followed(maker, 0, 1)
                maker.finish()
            return iter(found)

    store = Moving()
    maker = maker_of(store)
    store.ready = True
    report = check(store, read_data=True)
    assert store.moved
    assert (report.findings, report.orphans) == ((), ())
    assert check(store, read_data=True).findings == ()


# --- every corruption -----------------------------------------------------------------------------------------

Corrupt = Callable[[dict[str, bytes], str], Iterator[dict[str, bytes]]]


def flip(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    data, rng = objects[key], random.Random(key)
    for place in {0, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in range(3))}:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        yield {**objects, key: bytes(changed)}


def truncate(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for length in {0, len(objects[key]) // 2, len(objects[key]) - 1}:
        yield {**objects, key: objects[key][:length]}
    yield {**objects, key: objects[key] + b"\n"}


def swap(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    others = [each for each in by_kind(objects)[kind_of(key) or ""] if objects[each] != objects[key]]
    for other in random.Random(key).sample(others, min(4, len(others))):
        yield {**objects, key: objects[other], other: objects[key]}


def stale(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    others = [each for each in by_kind(objects)[kind_of(key) or ""] if objects[each] != objects[key]]
    for other in random.Random(key).sample(others, min(4, len(others))):
        yield {**objects, key: objects[other]}


def delete(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    yield {other: data for other, data in objects.items() if other != key}


@pytest.mark.parametrize("corrupt", [flip, truncate, swap, stale, delete])
def test_every_corruption_is_found(objects: dict[str, bytes], corrupt: Corrupt) -> None:
    # covers F9, GEN-10, I12
    tried = 0
    for kind, keys in by_kind(objects).items():
        for key in random.Random(kind).sample(keys, min(6, len(keys))):
            for changed in corrupt(objects, key):
                tried += 1
                found = findings(changed)
                assert found or (corrupt is delete and may_be_gone(key, objects)), (
                    f"{corrupt.__name__} of {key}"
                )
    print(corrupt.__name__, tried)
    assert tried >= 20


def may_be_gone(key: str, objects: dict[str, bytes]) -> bool:
    """The newest word on a unit, of which nothing else speaks: as if its writer had just been killed."""
    known = layout.known(key)
    assert known is not None
    folder = layout.generation("digits", "digits", known.parts["contract"])
    unit, n = known.parts["unit"], int(known.parts.get("try", 0))
    followed = f"{folder}/claims/{unit}-{n + 1}.json" in objects
    match known.kind:
        case "generation-conflict":
            return True  # the rows that it names are an orphan then
        case "generation-failure":
            return not followed
        case "generation-claim":  # that the unit was claimed before says the first one
            return not followed and n > 1 and f"{folder}/failures/{unit}-{n}.json" not in objects
        case "generation-receipt":
            canary_or_conflict = unit in ("00000000", "00000001", "00000004")
            return f"{folder}/manifest.json" not in objects and not canary_or_conflict
    return False


def test_a_copy_beside_the_store_s_own_objects_is_named(objects: dict[str, bytes]) -> None:
    # covers F9
    for kind, keys in by_kind(objects).items():
        key = keys[0]
        folder, _, name = key.rpartition("/")
        copies = [f"{folder}/copy.of.{name}", key.replace("experiments/digits", "experiments/other")]
        if kind in ("generation-receipt", "generation-claim", "generation-data"):
            copies.append(f"{folder}/00000077{name[8:]}")
            copies.append(f"{folder}/000000000{name}")
        for copy in copies:
            report = check(MemoryStore({**objects, copy: objects[key]}), read_data=True)
            assert not report.ok or copy in named(report), copy


def named(report: Report) -> set[str]:
    found = {finding.key for finding in report.findings}
    return found | {listed.key for listed in (*report.orphans, *report.stranded, *report.unknown)}


def test_one_fault_is_not_told_a_hundred_times(objects: dict[str, bytes]) -> None:
    for keys in by_kind(objects).values():
        for key in keys[:4]:
            for changed in itertools.chain(delete(objects, key), truncate(objects, key)):
                assert len(findings(changed)) <= 3, key


def test_rows_are_read_only_with_read_data(objects: dict[str, bytes]) -> None:
    closed = next(key for key in objects if kind_of(key) == "generation-manifest").rpartition("/")[0]
    for kind in ("generation-data", "inputs"):
        key = next(
            each
            for each in by_kind(objects)[kind]
            if each.endswith(".parquet") and (kind == "inputs" or each.startswith(closed))
        )
        changed = {**objects, key: objects[key][:-1] + b"?"}
        assert findings(changed, read_data=False) == ()
        (finding,) = findings(changed)
        assert (finding.key, finding.invariant) == (key, "I2")
        (finding,) = findings({**objects, key: objects[key][:-1]}, read_data=False)
        assert finding.invariant == "I1"


def test_what_belongs_to_a_damaged_contract_is_not_called_harmless(objects: dict[str, bytes]) -> None:
    # covers F24, I12
    for kind in ("generation-contract", "generation-receipt"):
        key = by_kind(objects)[kind][0]
        report = check(MemoryStore({**objects, key: b"{}"}), read_data=True)
        assert report.orphans == ()
        assert report.stranded
        text = "\n".join(report_lines(report))
        assert "part of something that is damaged or gone" in text
        assert "harmless" not in text


# --- what a faulty writer would leave -----------------------------------------------------------------------------


def faulty(maker: Maker, unit: int, table: pa.Table | None = None, **change: Any) -> None:
    """Publish as a faulty worker would, without a look at what it publishes."""
    receipt, data = maker.unit_receipt(unit)
    maker.take_unit(unit)
    if table is not None:
        data = parquet_bytes(table)
        change = {"sha256": sha256(data), "size_bytes": len(data), **change}
    receipt = receipt.model_copy(update=change)
    key = layout.generation_data("digits", "digits", maker.shards.digest, unit, receipt.sha256)
    maker.store.put_new(key, data)
    maker.store.put_new(
        layout.generation_receipt("digits", "digits", maker.shards.digest, unit), sealed(receipt)
    )


def reversed_rows(table: pa.Table) -> pa.Table:
    return table.take([3, 2, 1, 0])


ROWS_RULE = "the rows of a unit are those that its receipt counts"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            {"rows": Rows(requested=3, produced=3, filtered=0, failed=0), "contents": ""},
            "accounts for every row",
        ),
        (
            {
                "rows": Rows(requested=4, produced=3, filtered=0, failed=1),
                "failed": {"x": 1},
                "failed_rows": (99,),
                "contents": "",
            },
            "the rows that failed are of the unit",
        ),
        ({"failed_rows": (4,)}, "the rows that failed are of the unit"),
        ({"contents": ""}, None),
        ({"contents": "AAAA"}, "what came of a unit"),
        ({"contents": base64.b64encode(b"x" * 32).decode()}, ROWS_RULE),
        ({"reused": sha256(b"old")}, "a unit is reused where its contract says so"),
        ({"given_up": "no more"}, "the rows of a unit are given up by a person"),
        ({"size_bytes": 3}, "the rows of a unit have the size that its receipt says"),
    ],
)
def test_a_receipt_that_does_not_hold_is_found(change: dict[str, Any], rule: str | None) -> None:
    # covers I3, I12
    maker = maker_of(MemoryStore())
    faulty(maker, 1, **change)
    found = rules(maker.store)
    assert (found == []) if rule is None else any(rule in each for each in found), found


@pytest.mark.parametrize(
    "wrong",
    [
        lambda table: table.slice(0, 3),
        reversed_rows,
        lambda table: table.take([0, 1, 2, 2]),
        lambda table: table.set_column(0, "row", pa.array([40, 41, 42, 43])),
        lambda table: table.drop_columns(["label"]),
        lambda table: table.rename_columns(["row", "id", "sample", "image", "other"]),
        lambda table: table.set_column(4, "label", pa.array([9, 9, 9, 9])),
    ],
)
def test_rows_that_a_receipt_does_not_count_are_found(wrong: Callable[[pa.Table], pa.Table]) -> None:
    # covers GEN-10, I1, I12
    maker = maker_of(MemoryStore())
    faulty(maker, 1, wrong(maker.table(1)))
    assert rules(maker.store) == [ROWS_RULE]
    assert rules(maker.store, read_data=False) == []


def test_a_row_is_failed_or_there_but_not_both() -> None:
    maker = maker_of(MemoryStore())
    table = maker.table(1).take([0, 1, 3])
    faulty(
        maker,
        1,
        table,
        rows=Rows(requested=4, produced=3, filtered=0, failed=1),
        failed={"x": 1},
        failed_rows=(7,),
        contents="",
    )
    assert rules(maker.store) == [ROWS_RULE]


def test_a_unit_that_nobody_has_claimed_is_found() -> None:
    # covers I3
    maker = maker_of(MemoryStore())
    receipt, data = maker.unit_receipt(1)
    maker.shards.publish(receipt, data, n=1, worker="gen-1")
    assert rules(maker.store) == ["a unit is claimed before it is made"]


def test_attempts_are_held_against_each_other() -> None:
    # covers I3
    maker = maker_of(MemoryStore())
    maker.take_unit(1)
    maker.shards.claim(1, 2, worker="gen-2", place=maker.place, at=1.0, deadline_s=9.0)
    assert rules(maker.store) == ["an attempt begins once the one before has failed"]


def test_a_conflict_is_what_it_says() -> None:
    # covers I3, I12
    maker = maker_of(MemoryStore())
    maker.publish(1)
    conflict(maker, 1, 1)
    assert rules(maker.store) == ["only who has claimed an attempt ends it"]  # gen-1 has
    key = next(iter(layout_keys(maker, "generation-receipt")))
    del maker.store.objects[key]  # type: ignore[attr-defined]
    assert "a conflict is with the receipt that decided" in rules(maker.store)


def layout_keys(maker: Maker, kind: str) -> list[str]:
    return by_kind(maker.store.objects)[kind]  # type: ignore[attr-defined]


def test_a_reused_unit_is_what_it_was() -> None:
    # covers GEN-12, I3
    maker = maker_of(MemoryStore())
    maker.publish(0, 1)
    followed(maker, 0)
    assert rules(maker.store) == []
    key = layout.generation_receipt("digits", "digits", maker.shards.digest, 0)
    receipt = maker.shards.receipt(0)
    assert receipt is not None
    other = receipt.model_copy(update={"counts": {"duplicates": 2}})
    maker.store.objects[key] = sealed(other)  # type: ignore[attr-defined]
    assert rules(maker.store) == ["a reused unit is what it was when it was made"]


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (
            lambda at: GivenUp(name="digits", contract=at, units=(10,), reason="r", person="mira"),
            "a unit that is given up is of its set",
        ),
        (
            lambda at: Retried(request=unit_id(at, 0), after=2, reason="r", person="mira"),
            "what a person lets be tried again was tried",
        ),
        (
            lambda at: Generated(name="digits", contract=at, manifest=sha256(b""), rows=ROWS, by="l"),
            "a set that was closed keeps its manifest",
        ),
        (
            lambda at: Contracted(
                name="digits",
                contract=sha256(b"none"),
                candidate="c",
                update=1,
                key="k",
                scripted=False,
                person="mira",
            ),
            "a contract that counts, or that units are made under, is kept",
        ),
    ],
)
def test_what_the_log_says_of_a_set_is_so(event: Callable[[str], Record], rule: str) -> None:
    # covers I8, I11, I12
    maker = maker_of(MemoryStore())
    maker.publish(0)
    maker.tell(event(maker.shards.digest))
    assert rules(maker.store) == [rule]


ROWS = Rows(requested=40, produced=40, filtered=0, failed=0)


def test_a_set_is_closed_once_and_by_its_own_manifest() -> None:
    # covers GEN-11, I11, I12
    maker = maker_of(MemoryStore())
    manifest = maker.finish()
    maker.tell(
        Generated(
            name="digits",
            contract=maker.shards.digest,
            manifest=manifest.digest,
            rows=ROWS,
            by="l",
        )
    )
    assert rules(maker.store) == ["a set is closed once"]
    other = manifest.model_copy(update={"size_bytes": 1})
    key = layout.generation_manifest("digits", "digits", maker.shards.digest)
    maker.store.objects[key] = other.to_bytes()  # type: ignore[attr-defined]
    assert "a set is closed by the manifest that the log names" in rules(maker.store)


def test_a_manifest_that_nobody_has_told_of_is_what_its_receipts_add_up_to() -> None:
    # covers GEN-11, I12
    maker = maker_of(MemoryStore())
    maker.publish(*range(10))
    manifest = maker.close(told=False)
    key = layout.generation_manifest("digits", "digits", maker.shards.digest)
    objects = maker.store.objects  # type: ignore[attr-defined]
    for change in ({"scripted": True}, {"size_bytes": 1}):
        objects[key] = manifest.model_copy(update=change).to_bytes()
        assert rules(maker.store) == ["a manifest is what its receipts add up to"]
    objects[key] = manifest.to_bytes()
    del objects[layout.generation_receipt("digits", "digits", maker.shards.digest, 4)]
    assert rules(maker.store) == ["a set is closed once every requested row is accounted for"]


def test_units_are_made_under_a_contract_that_counts() -> None:
    # covers I14
    maker = maker_of(MemoryStore())
    other = Maker(maker.store)
    other.__dict__.update(maker.__dict__)
    other.shards = Shards(maker.store, maker.contract_of(seed=5))
    other.shards.freeze()
    other.publish(0)
    assert rules(maker.store) == ["units are made under a contract that counts"]


def test_a_contract_follows_the_one_before_it() -> None:
    # covers GEN-16, FLEET-13
    maker = maker_of(MemoryStore())
    maker.contract_now(seed=3)
    assert rules(maker.store) == ["a contract follows the one before it"]


def test_every_row_has_an_input() -> None:
    maker = maker_of(MemoryStore(), rows=44)
    assert rules(maker.store) == ["every row has an input"]


def test_inputs_that_a_contract_names_are_kept() -> None:
    # covers I1
    maker = maker_of(MemoryStore())
    objects = maker.store.objects  # type: ignore[attr-defined]
    digest = INPUTS.manifest.digest
    for key in (
        layout.generation_inputs("digits", digest, "manifest.json"),
        chunk_key("digits", digest, INPUTS.manifest.chunks[0].sha256),
    ):
        changed = {other: data for other, data in objects.items() if other != key}
        (finding,) = findings(changed, read_data=False)
        assert finding.invariant == "I1"


def test_the_log_of_a_set_that_is_damaged_is_told_once() -> None:
    maker = maker_of(MemoryStore())
    lively(maker)
    maker.finish()
    objects = maker.store.objects  # type: ignore[attr-defined]
    entries = sorted(key for key in objects if key.startswith("experiments/digits/log/"))
    for key in entries:
        found = findings({**objects, key: objects[key][:-3]}, read_data=False)
        assert 1 <= len([each for each in found if "/generation/" not in each.key]) <= 3
        assert [each for each in found if "/generation/" in each.key] == []


def test_a_set_that_is_whole_passes_the_check_that_every_test_calls(objects: dict[str, bytes]) -> None:
    check_invariants(MemoryStore(dict(objects)))


def test_a_check_that_is_interrupted_changes_nothing(objects: dict[str, bytes]) -> None:
    # covers F31
    class StopHere(Exception):
        pass

    def stop() -> None:
        raise StopHere

    store = MemoryStore(dict(objects))
    steps = FaultStore(store)
    check(steps, read_data=True)
    assert all(step.split()[0] in ("list", "open", "head", "get") for step in steps.fault.operations)
    with pytest.raises(StopHere):
        check(FaultStore(store, Fault(stop, at=len(steps.fault.operations) // 2)), read_data=True)
    assert store.objects == objects


@pytest.mark.parametrize("wrong", [False, True])
def test_what_two_processes_have_made_alike_is_what_was_published(wrong: bool) -> None:
    # covers FAULT-C03
    store = MemoryStore()
    maker = maker_of(store)
    maker.publish(0)
    receipt, (claim,) = maker.shards.receipt(0), maker.shards.claims()
    assert receipt is not None
    said = Took(
        request=claim.request,
        n=claim.n,
        worker=claim.worker,
        receipt="0" * 64 if wrong else receipt.digest,
        took_ms=5,
        peak_bytes=0,
        at=claim.at,
    )
    assert maker.shards.made_again(0, said) and not maker.shards.made_again(
        0, said.model_copy(update={"at": 2.0})
    )
    report = check(store, read_data=True)
    assert (report.orphans, report.unknown) == ((), ())
    assert ["what two processes made alike is published"] * wrong == [each.rule for each in report.findings]
