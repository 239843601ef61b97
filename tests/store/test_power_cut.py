"""Every state that a power cut can leave of what LocalStore does. F3; covers I1, I2, I10."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from raykit.ids import canonical, parse_json, sha256
from raykit.store import LocalStore, Put
from raykit.store.disk import Disk
from raykit.testing import Fault, FaultDisk, PowerCut, RecordingDisk
from raykit.testing.powercut import State

SEED = 20261


class PowerWentOffError(BaseException):
    """Ends a writer in the middle; its clean-up does not happen either, as its disk refuses everything."""


def die() -> None:
    raise PowerWentOffError


class Lab:
    """Writers on one recorded disk, and what they meant to write."""

    def __init__(self, root: Path, disk: RecordingDisk) -> None:
        self.root = root
        self.disk = disk
        self.meant: dict[str, set[bytes]] = {}

    def put(self, store: LocalStore, key: str, data: bytes) -> Put:
        self.meant.setdefault(key, set()).add(data)
        half = len(data) // 2
        outcome = store.put_new(key, iter([data[:half], data[half:]])).outcome
        self.disk.acknowledge(key, data)
        return outcome

    def commit(self, store: LocalStore, name: str, files: dict[str, bytes]) -> None:
        """Data under a prefix first, then the one object that names it with its digests."""
        for file, data in files.items():
            self.put(store, f"data/{name}/{file}", data)
        named = {f"data/{name}/{file}": sha256(data) for file, data in files.items()}
        self.put(store, f"commits/{name}.json", canonical(named))

    def breaches(self, state: State) -> list[str]:
        """What is wrong in a state: acknowledged and lost, half-visible, or committed and absent."""
        wrong = [
            f"{key} was acknowledged and is lost"
            for key, data in state.acknowledged.items()
            if state.objects.get(key) != data
        ]
        for key, data in state.objects.items():
            if data not in self.meant[key]:
                wrong.append(f"{key} is half there")
            elif key.startswith("commits/"):
                for named, digest in parse_json(data, key).items():
                    if sha256(state.objects.get(named, b"")) != digest:
                        wrong.append(f"{key} names {named}, which is not there")
        return [f"{state.story}: {line}" for line in wrong]


def two_commits(lab: Lab, rng: random.Random) -> None:
    store = LocalStore(lab.root, disk=lab.disk)
    for name in ("one", "two"):
        lab.commit(store, name, {file: rng.randbytes(rng.randrange(2, 60)) for file in ("model", "state")})


def a_writer_that_dies_and_one_that_goes_on(lab: Lab, rng: random.Random) -> None:
    """The second finds folders, temporary files and perhaps keys that nobody has synced."""
    key, data = "a/b/log/1.json", rng.randbytes(40)
    lab.meant[key] = {data}
    at = rng.randrange(1, 20)
    dying = LocalStore(lab.root, disk=FaultDisk(Fault(die, at=at, forever=True), lab.disk))
    try:
        lab.put(dying, key, data)
    except PowerWentOffError:
        pass
    store = LocalStore(lab.root, disk=lab.disk)
    lab.put(store, key, data)
    lab.put(store, "a/b/log/2.json", rng.randbytes(40))
    lab.put(store, "a/c", rng.randbytes(4))


def states_of(
    root: Path, work: Callable[[Lab, random.Random], None], rng: random.Random
) -> tuple[Lab, PowerCut]:
    lab = Lab(root, RecordingDisk())
    work(lab, rng)
    return lab, PowerCut(root, lab.disk.trace)


@pytest.mark.parametrize(
    ("work", "rounds", "at_least"),
    [(two_commits, 1, 3000), (a_writer_that_dies_and_one_that_goes_on, 20, 10_000)],
)
def test_no_state_after_a_power_cut_breaks_a_promise(
    tmp_path: Path, work: Callable[[Lab, random.Random], None], rounds: int, at_least: int
) -> None:
    rng = random.Random(SEED)
    count = 0
    for i in range(rounds):
        lab, cut = states_of(tmp_path / str(i), work, rng)
        for state in cut.states():
            assert lab.breaches(state) == [], f"seed {SEED}, round {i}"
            count += 1
    print(f"{count} states, seed {SEED}")
    assert count >= at_least


class NoFileSync(RecordingDisk):
    def sync(self, file: int) -> None:
        Disk.sync(self, file)


class NoFolderSync(RecordingDisk):
    def sync_folder(self, folder: int) -> None:
        Disk.sync_folder(self, folder)


class SyncsOnlyTheLastFolder(RecordingDisk):
    """What a store does that forgets the folders which it, or another writer, has just made."""

    def sync_folder(self, folder: int) -> None:
        if self.trace[-1].verb == "name" or Path(f"/proc/self/fd/{folder}").readlink().name == "log":
            super().sync_folder(folder)


@pytest.mark.parametrize("disk", [NoFileSync, NoFolderSync, SyncsOnlyTheLastFolder])
@pytest.mark.parametrize("work", [two_commits, a_writer_that_dies_and_one_that_goes_on])
def test_the_simulation_finds_a_missing_sync(
    tmp_path: Path, disk: type[RecordingDisk], work: Callable[[Lab, random.Random], None]
) -> None:
    lab = Lab(tmp_path / "root", disk())
    work(lab, random.Random(SEED))
    assert any(lab.breaches(state) for state in PowerCut(lab.root, lab.disk.trace).states())


def test_the_states_are_what_the_real_reader_sees(tmp_path: Path) -> None:
    lab, cut = states_of(tmp_path / "recorded", two_commits, random.Random(SEED))
    states = list(cut.states())
    for i, state in enumerate(random.Random(SEED).sample(states, 50)):
        root = tmp_path / f"after-{i}"
        for key, data in state.objects.items():
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(data)
        store = LocalStore(root)
        assert {key: store.get(key) for key, _ in store.list("")} == dict(state.objects)
        assert lab.breaches(state) == []
    whole = states[-1]
    live = LocalStore(lab.root)
    assert any(dict(state.objects) == {key: live.get(key) for key, _ in live.list("")} for state in states)
    assert whole.acknowledged.keys() == lab.meant.keys()
