"""`check` finds every seeded corruption, raises no false alarm, and writes nothing."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from makeledger import AT, PaidRun
from makerun import RunMaker, make_run

from raykit.errors import CorruptError, RaykitError
from raykit.ids import canonical, sha256
from raykit.plan import LockedBase
from raykit.records import (
    Adopted,
    AdoptedFile,
    AttemptEnded,
    Beat,
    CandidatesEntry,
    Commit,
    ExperimentEntry,
    Launched,
    Record,
    Registered,
    Released,
    Segment,
)
from raykit.store import candidates, layout, people
from raykit.store.base import Data, Listed, Stored
from raykit.store.check import Report, check
from raykit.store.check.rules import RunRules
from raykit.store.local import LocalStore
from raykit.store.log import Log, RunLog, seal, unseal
from raykit.store.plans import newest_lock, newest_stored_lock
from raykit.testing import Fault, FaultStore, MemoryStore
from raykit.testing.invariants import check_invariants


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """A root with three experiments, one of them paid for, a fleet that has been paused, and two candidates."""
    store = MemoryStore()
    make_run(store)
    paid = PaidRun(store, experiment="paid")
    paid.freeze()
    for _ in range(2):
        paid.launch()
        paid.begin()
        paid.rows(5)
        paid.commit("stop")
        paid.end("paused")
        paid.release("paused")
        people.pause(store, "all", reason="the racks move", person="mira", at=AT)
        people.resume(store, "all", cleared="they have moved", person="mira", at=AT)
    other = RunMaker(store, experiment="second")
    other.freeze()
    other.launch()
    other.begin()
    other.rows(10)
    other.look()
    other.commit("stop")
    other.end("paused")
    other.release("paused")
    goes_on(store, adopt(store, "elsewhere"))
    register_commit(store, "best")
    return store.objects


def adopt(store: MemoryStore, name: str, *, body: bytes = b"weights" * 99) -> Registered:
    """Weights that were made elsewhere, with their configuration."""
    bodies = {"model.safetensors": body, "config.json": b'{"layers": 2}'}
    files = [
        AdoptedFile(name=file, sha256=sha256(data), size_bytes=len(data), holds=holds)
        for (file, data), holds in zip(bodies.items(), ("model", "config"), strict=True)
    ]
    manifest = Adopted(files=tuple(files), tensors=1, elements=173)
    candidates.keep_adopted(store, manifest, lambda file: [bodies[file]])
    event = Registered(
        candidate=name,
        role="base",
        origin="adopted",
        manifest=candidates.adopted_digest(manifest),
        key=candidates.adopted_key(manifest),
        history="absent",
        person="mira",
    )
    candidates.register(store, event, at=AT)
    return event


def register_commit(store: MemoryStore, name: str) -> Registered:
    """The first checkpoint of the experiment `second`."""
    log = RunLog(store, "second", "main", by="reader")
    log.refresh()
    commit = log.state.commits[0]
    event = Registered(
        candidate=name,
        role="production-candidate",
        origin="run",
        manifest=commit.sha256,
        key=commit.key,
        experiment="second",
        update=commit.update,
        person="mira",
    )
    candidates.register(store, event, at=AT)
    return event


def goes_on(store: MemoryStore, base: Registered) -> None:
    """Lock another plan of the experiment `second`: it starts from a base, and takes tables from a shared file."""
    was = newest_stored_lock(store, "second")
    assert was is not None
    shared = b'[claim]\nunit = "one image"\n'
    named = LockedBase(
        candidate=base.candidate,
        origin="adopted",
        experiment=base.candidate,
        update=0,
        attempt=0,
        manifest=base.manifest,
        key=base.key,
    )
    lock = was.model_copy(update={"base": named, "shared": sha256(shared)})
    plan = store.get(layout.plan("second", was.digest, "plan.toml"))
    for file, data in (("shared.toml", shared), ("plan.toml", plan), ("plan.lock", lock.to_bytes())):
        store.put_new(layout.plan("second", lock.digest, file), data)
    locked = newest_lock(store, "second")
    assert locked is not None
    event = locked.model_copy(update={"plan": lock.digest})
    Log(store, layout.experiment_log("second"), ExperimentEntry, by="maker").append(lambda _: [event], at=AT)


def forked(objects: dict[str, bytes]) -> MemoryStore:
    return MemoryStore(dict(objects))


def object_class(key: str) -> str | None:
    """What F9 calls an object class: a kind, and for checkpoints, plans and members the file too."""
    known = layout.known(key)
    assert known is not None
    if known.kind in layout.DERIVED:
        return None
    if known.kind in ("checkpoint", "plan", "membership", "adopted"):
        return f"{known.kind} {key.rpartition('/')[2]}"
    told_by = known.parts.get("series") or known.parts.get("identity")
    return f"{known.kind} {told_by}" if told_by else known.kind


def by_class(objects: dict[str, bytes]) -> dict[str, list[str]]:
    classes: dict[str, list[str]] = {}
    for key in sorted(objects):
        name = object_class(key)
        if name is not None:
            classes.setdefault(name, []).append(key)
    return classes


def some(keys: list[str]) -> list[str]:
    """The first, the last, and two between."""
    return sorted({keys[0], keys[len(keys) // 3], keys[2 * len(keys) // 3], keys[-1]})


def test_a_clean_root_has_no_findings(objects: dict[str, bytes]) -> None:
    # covers I12
    for read_data in (False, True):
        report = check(forked(objects), read_data=read_data)
        assert (report.findings, report.orphans, report.unknown) == ((), (), ())
        assert report.ok
        assert report.counts["runs"] == 3
        assert report.counts["accounts"] == 1
        assert report.counts["rows"] == 60
        assert report.counts["commits"] == 10
        assert report.counts["candidates"] == 2
        assert report.counts["segments"] == 35
        assert report.counts["objects"] == len(objects)


def test_there_are_all_classes(objects: dict[str, bytes]) -> None:
    assert sorted(by_class(objects)) == [
        "account-entry",
        "account-of data",
        "account-of decision",
        "account-of experiment",
        "adopted config.json",
        "adopted manifest.json",
        "adopted model.safetensors",
        "candidates-entry",
        "checkpoint manifest.json",
        "checkpoint model.safetensors",
        "checkpoint optimizer.safetensors",
        "checkpoint rank-00000.json",
        "checkpoint state.json",
        "code",
        "environment",
        "experiment-entry",
        "fleet-entry",
        "membership development.parquet",
        "membership manifest.json",
        "membership train.parquet",
        "plan plan.lock",
        "plan plan.toml",
        "plan shared.toml",
        "run-entry",
        "run-record",
        "segment",
        "segment development",
        "segment monitor",
    ]


# --- every corruption ---------------------------------------------------------------------------------------

Corrupt = Callable[[dict[str, bytes], str], Iterator[dict[str, bytes]]]


def flip(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    data = objects[key]
    rng = random.Random(key)
    places = {0, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in range(9))}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        yield {**objects, key: bytes(changed)}


def truncate(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for length in {0, 1, len(objects[key]) // 2, len(objects[key]) - 1}:
        yield {**objects, key: objects[key][:length]}
    yield {**objects, key: objects[key] + b"\n"}


def swap(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for other in some(by_class(objects)[object_class(key) or ""]):
        if objects[other] != objects[key]:
            yield {**objects, key: objects[other], other: objects[key]}


def delete(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    yield {other: data for other, data in objects.items() if other != key}


def duplicate(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    folder, _, name = key.rpartition("/")
    for copy in {
        f"{folder}/copy.of.{name}",
        key.replace(name, f"{int(name[:12]) + 1:012d}.json") if name[:12].isdigit() else f"{folder}/{name}.1",
        key.replace(sha256(objects[key]), sha256(b"another")),
    }:
        if copy not in objects:
            yield {**objects, copy: objects[key]}


def stale(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    """An older object of the class in its place, as a restored backup would have it."""
    keys = by_class(objects)[object_class(key) or ""]
    for older in keys[: keys.index(key)][-2:]:
        if objects[older] != objects[key]:
            yield {**objects, key: objects[older]}


@pytest.mark.parametrize("corrupt", [flip, truncate, swap, delete, duplicate, stale])
def test_every_corruption_is_found(objects: dict[str, bytes], corrupt: Corrupt) -> None:
    # covers F9, I12
    tried = 0
    for name, keys in by_class(objects).items():
        for key in some(keys):
            for changed in corrupt(objects, key):
                tried += 1
                report = check(MemoryStore(changed), read_data=True)
                assert found(report, corrupt, objects, changed), f"{corrupt.__name__} of {name} {key}"
    print(corrupt.__name__, tried)
    assert tried >= 20


def found(report: Report, corrupt: Corrupt, objects: dict[str, bytes], changed: dict[str, bytes]) -> bool:
    if corrupt is not duplicate:
        return not report.ok
    # A copy beside the store's own objects breaks no promise, but it is named.
    named = {finding.key for finding in report.findings}
    named |= {listed.key for listed in (*report.orphans, *report.unknown)}
    return not report.ok or changed.keys() - objects.keys() <= named


def test_each_byte_of_the_newest_entry_counts(objects: dict[str, bytes]) -> None:
    key = max(key for key in objects if (layout.known(key) or ("",))[0] == "run-entry" and "digits" in key)
    for place in range(0, len(objects[key]), 3):
        changed = bytearray(objects[key])
        changed[place] ^= 1
        report = check(MemoryStore({**objects, key: bytes(changed)}), read_data=False)
        assert [finding.key for finding in report.findings] == [key]


def test_without_data_sizes_and_records_still_count(objects: dict[str, bytes]) -> None:
    for keys in by_class(objects).values():
        for key in some(keys):
            for changed in itertools.chain(delete(objects, key), truncate(objects, key)):
                if object_class(key) != "code" or key not in changed:
                    assert not check(MemoryStore(changed), read_data=False).ok, key


def test_a_log_that_lost_its_end_is_found(objects: dict[str, bytes]) -> None:
    # covers I10
    log = layout.run_log("digits", "main")
    entries = sorted(key for key in objects if key.startswith(log + "/"))
    for keep in range(1, len(entries)):
        changed = {key: data for key, data in objects.items() if key not in entries[keep:]}
        report = check(MemoryStore(changed), read_data=False)
        assert entries[-1] in {finding.key for finding in report.findings}
        del changed[layout.log_snapshot(log)]
        report = check(MemoryStore(changed), read_data=False)
        assert report.ok or "not in the log" in report.findings[0].found
        if not any(
            b'"attempt":2' in changed[key] and b"attempt_started" in changed[key] for key in entries[:keep]
        ):
            assert not report.ok


def test_a_log_rewritten_by_someone_who_knows_the_format_is_found(objects: dict[str, bytes]) -> None:
    # covers S15
    log = layout.run_log("digits", "main")
    entries = sorted(key for key in objects if key.startswith(log + "/"))
    changed = dict(objects)
    body = unseal(changed[entries[-1]], "it").replace(b'"reason":"completed"', b'"reason":"paused"')
    changed[entries[-1]] = seal(body)
    report = check(MemoryStore(changed), read_data=False)
    assert [(f.key, f.found) for f in report.findings] == [(entries[-1], f"{entries[-1]} was written anew")]


def test_a_forged_entry_is_found_without_a_snapshot(objects: dict[str, bytes]) -> None:
    # covers S15
    log = layout.run_log("digits", "main")
    entries = sorted(key for key in objects if key.startswith(log + "/"))
    for place in range(len(entries) - 1):
        changed = dict(objects)
        del changed[layout.log_snapshot(log)]
        body = unseal(changed[entries[place]], "it").replace(b'"by":"maker"', b'"by":"nobody"')
        changed[entries[place]] = seal(body)
        report = check(MemoryStore(changed), read_data=False)
        following = entries[place + 1]
        assert [(f.key, f.found) for f in report.findings] == [
            (following, f"{following} does not follow the entry before it")
        ]


def test_one_fault_is_not_told_a_hundred_times(objects: dict[str, bytes]) -> None:
    classes = by_class(objects)
    logs = ("run-entry", "experiment-entry", "account-entry", "fleet-entry")
    for key in (key for name in logs for key in some(classes[name])):
        for changed in itertools.chain(delete(objects, key), truncate(objects, key)):
            assert len(check(MemoryStore(changed), read_data=True).findings) <= 2, key


def test_derived_files_do_not_count(objects: dict[str, bytes]) -> None:
    changed = dict(objects)
    derived = [key for key in changed if object_class(key) is None]
    assert len(derived) == 15
    for key in derived:
        changed[key] = changed[key][:-7] + b"x"
    report = check(MemoryStore(changed), read_data=True)
    assert (report.findings, report.orphans) == ((), ())


def test_other_peoples_files_are_named_and_are_no_fault(objects: dict[str, bytes]) -> None:
    report = check(MemoryStore({**objects, "notes.txt": b"hello"}), read_data=True)
    assert report.ok
    assert report.unknown == (Listed("notes.txt", 5),)


# --- no false alarm -----------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


def test_after_a_crash_at_any_step_no_promise_is_broken() -> None:
    # covers I1, I4, F1, F31
    steps = FaultStore(MemoryStore())
    make_run(steps)
    total = len(steps.fault.operations)
    seen_orphans = fired = 0
    for at in range(1, total + 1, 5):
        for when in ("before", "after"):
            inner = MemoryStore()
            fault = Fault(crash, at=at, when=when)
            with contextlib.suppress(Crash):
                make_run(FaultStore(inner, fault))
            if not fault.fired:  # a get of what is not there has no "after"
                continue
            fired += 1
            report = check_invariants(inner)
            seen_orphans += bool(report.orphans)
            assert not report.unknown
    print(fired, "crashes in", total, "operations;", seen_orphans, "left orphans")
    assert fired > total // 4
    assert seen_orphans > 5, "a killed writer leaves orphans, and they are no fault"


@pytest.mark.parametrize("seed", range(25))
def test_whatever_runs_do_there_is_no_false_alarm(seed: int) -> None:
    # covers I12
    rng = random.Random(seed)
    print("seed", seed)
    store = MemoryStore()
    for n in range(rng.randint(1, 3)):
        disturbed_run(RunMaker(store, run=f"run-{n}"), rng)
    report = check_invariants(store)
    assert not report.unknown
    assert check(store, read_data=False).ok


def disturbed_run(maker: RunMaker, rng: random.Random) -> None:
    """Launches that are killed, paused or fail at random until one completes, or nobody goes on."""
    maker.freeze()
    for _ in range(rng.randint(1, 5)):
        maker.launch()
        if rng.random() < 0.2:
            continue
        maker.begin()
        for _ in range(rng.randint(0, 4)):
            maker.rows(rng.randint(1, 9), every=rng.randint(1, 5))
            if rng.random() < 0.3:
                maker.look()
            if rng.random() < 0.5:
                maker.commit()
            if rng.random() < 0.2:
                maker.beat()
        match rng.randrange(4):
            case 0:
                continue
            case 1:
                maker.rows(1)
                maker.store.put_new(maker.slot().key("model.safetensors"), b"half")
            case 2:
                maker.ask_to_stop("SIGTERM")
                maker.end("paused")
                maker.release("paused")
            case 3:
                maker.end("completed")
                maker.release("completed")
                return


def test_a_run_that_goes_on_beneath_the_check_is_no_fault() -> None:
    store = MemoryStore()
    maker = RunMaker(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(10)

    class Moving(MemoryStore):
        """Everything is written between the listing and the reading."""

        def list(self, prefix: str) -> Iterator[Listed]:
            found = list(super().list(prefix))
            if prefix == "":
                maker.look()
                maker.commit()
                maker.launch()
                maker.begin()
                maker.rows(3)
                maker.flush()
            return iter(found)

    report = check(Moving(store.objects), read_data=True)
    assert report.findings == ()
    assert report.orphans == ()
    assert report.counts["rows"] == 13


def test_uncommitted_files_are_orphans(objects: dict[str, bytes]) -> None:
    # covers F13
    key = layout.checkpoint("digits", "main", 50, 2, "model.safetensors")
    segment = layout.segment("digits", "main", 2, "train", 41, 45)
    report = check(MemoryStore({**objects, key: b"half", segment: b"rows"}), read_data=True)
    assert report.ok
    assert sorted(report.orphans) == [Listed(key, 4), Listed(segment, 4)]


# --- on a disk ----------------------------------------------------------------------------------------------


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    # covers F31
    store = LocalStore(tmp_path)
    make_run(store)

    class ReadOnly(LocalStore):
        def put_new(self, key: str, data: Data) -> Stored:
            raise AssertionError(key)

        def put_derived(self, key: str, data: Data) -> None:
            raise AssertionError(key)

        def delete(self, key: str) -> None:
            raise AssertionError(key)

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert check(ReadOnly(tmp_path), read_data=True).ok
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_temporary_files_and_links_are_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    make_run(store)
    (tmp_path / ".tmp" / "1-abc").write_bytes(b"half")
    report = check(store, read_data=True)
    assert report.ok
    assert report.orphans == (Listed(".tmp/1-abc", 0),)
    (tmp_path / "experiments" / "link").symlink_to("/etc")
    report = check(store, read_data=True)
    assert [finding.key for finding in report.findings] == ["experiments/link"]


def test_an_empty_root_is_whole(tmp_path: Path) -> None:
    assert check(LocalStore(tmp_path / "none"), read_data=True).ok
    assert not (tmp_path / "none").exists()


def test_progress_ends_at_the_whole(objects: dict[str, bytes]) -> None:
    told: list[tuple[int, int]] = []
    check(forked(objects), read_data=True, tell=lambda done, total: told.append((done, total)))
    total = sum(len(data) for data in objects.values())
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_the_report_as_json(objects: dict[str, bytes]) -> None:
    key = next(key for key in objects if key.endswith("model.safetensors"))
    report = check(MemoryStore({**objects, key: b""}), read_data=False)
    plain = report.plain()
    assert canonical(plain)
    assert plain["ok"] is False
    assert plain["findings"][0]["invariant"] == "I1"
    with pytest.raises(CorruptError, match="I1  a checkpoint is exactly") as refused:
        check_invariants(MemoryStore({**objects, key: b""}))
    assert isinstance(refused.value, RaykitError)
    assert os.linesep not in plain["findings"][0]["found"]


# --- the rules of a run's log -------------------------------------------------------------------------------


def events(objects: dict[str, bytes]) -> list[Record]:
    maker = RunMaker(MemoryStore(objects))
    maker.log.refresh()
    return [event for entry in maker.log.entries for event in entry.events]


def broken(sequence: list[Record]) -> list[str]:
    rules = RunRules()
    return [f"{b.invariant} {b.rule}" for event in sequence for b in rules.take(event)]


def test_every_run_event_has_its_place(objects: dict[str, bytes]) -> None:
    # covers I1, I4, I11
    whole = events(objects)
    assert broken(whole) == []
    noticed = {
        Launched: "I4 only the launch that owns the run writes",
        AttemptEnded: "I4 an attempt ends before the next begins",
        Commit: "I1 a resume starts from a commit of this log",
        Segment: "I4 history rows are exactly 1 to N",
    }
    for kind, rule in noticed.items():
        of_kind = [i for i, event in enumerate(whole) if isinstance(event, kind)]
        assert any(rule in broken(whole[:i] + whole[i + 1 :]) for i in of_kind), kind
    for i, event in enumerate(whole):
        if isinstance(event, Segment | AttemptEnded) or (isinstance(event, Commit) and event.update):
            assert broken([*whole[: i + 1], event, *whole[i + 1 :]]), f"{event} twice"


def test_what_a_zombie_would_write_is_found(objects: dict[str, bytes]) -> None:
    whole = events(objects)
    late: list[Record] = [event for event in whole if isinstance(event, Segment | Commit)]
    for event in [*late, Beat(launch="launch-1"), Released(launch="launch-1", reason="paused")]:
        assert any(rule.startswith("I4 only") for rule in broken([*whole, event])), event
    again = next(event for event in whole if isinstance(event, Launched))
    assert broken([*whole, again]) == ["I11 a completed run is left alone"]


# --- candidates ---------------------------------------------------------------------------------------------


def test_adopted_weights_that_nobody_registered_are_orphans(objects: dict[str, bytes]) -> None:
    """Whoever adopts them may die between the last file and the registry."""
    store = forked({key: data for key, data in objects.items() if not key.startswith("candidates/log")})
    report = check(store, read_data=True)
    orphans = {listed.key.rpartition("/")[2] for listed in report.orphans}
    assert orphans == {"model.safetensors", "config.json", "manifest.json"}
    assert report.ok


def test_adopted_bytes_are_read_only_with_read_data(objects: dict[str, bytes]) -> None:
    # covers I12
    key = next(key for key in objects if key.endswith("model.safetensors") and "adopted" in key)
    changed = {**objects, key: objects[key][:-1] + b"?"}
    assert check(MemoryStore(changed), read_data=False).ok
    (finding,) = check(MemoryStore(changed), read_data=True).findings
    assert (finding.invariant, "does not match its sha256" in finding.found) == ("I1", True)


def test_a_name_that_has_come_to_stand_for_other_weights_is_found(objects: dict[str, bytes]) -> None:
    # covers I2, CAND-29
    store = forked(objects)
    known = candidates.find_candidate(store, "best")
    assert known is not None
    other = known.model_copy(update={"role": "release-model"})
    log = Log(store, layout.candidates_log(), CandidatesEntry, by="a faulty writer")
    log.append(lambda entries: [other], at=AT)
    (finding,) = check(store, read_data=True).findings
    assert "was registered by mira with role production-candidate, not release-model" in finding.found


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_a_candidate_stays_the_bytes_that_it_was(objects: dict[str, bytes], what: str) -> None:
    # covers I1, CAND-27
    known = candidates.find_candidate(forked(objects), "best")
    assert known is not None
    changed = dict(objects)
    if what == "gone":
        del changed[known.key]
    else:
        changed[known.key] = changed[known.key].replace(b'"samples":0', b'"samples":1')
    rules = {finding.rule for finding in check(MemoryStore(changed), read_data=True).findings}
    wanted = (
        "the weights of a candidate are kept" if what == "gone" else "a candidate stays the bytes that it was"
    )
    assert wanted in rules


def test_the_base_of_a_locked_plan_is_kept(objects: dict[str, bytes]) -> None:
    # covers CAND-27
    changed = {key: data for key, data in objects.items() if not key.startswith("candidates/")}
    (finding,) = check(MemoryStore(changed), read_data=True).findings
    assert finding.rule == "the base of a locked plan is kept"
