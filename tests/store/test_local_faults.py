"""What a failing disk, a dying process and a racing one do to the store in a folder. F1, F4, F8."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from raykit.errors import (
    ConflictError,
    NotFoundError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
    UnusableRootError,
)
from raykit.store import LocalStore, Put
from raykit.store.disk import Disk
from raykit.store.probe import probe
from raykit.testing import Fault, FaultDisk, disk_error, kill

# A server that forks: its children have one thread, whatever the tests before started.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", "raykit.store.probe", "raykit.testing"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def in_a_child(target: Callable[..., None], *arguments: object) -> int:
    """The exit code of a process that does it."""
    child = processes.Process(target=target, args=arguments)
    child.start()
    child.join(60)
    code = child.exitcode
    child.close()
    assert code is not None
    return code


# --- errors of the disk -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES, errno.EROFS, errno.EDQUOT]
)
def test_an_error_at_any_system_call_is_typed_and_leaves_nothing_half(root: Path, number: int) -> None:
    body = b"x" * 100_000
    reached = 0
    for at in itertools.count(1):  # covers F4
        fault = Fault(disk_error(number), at=at)
        here = root / str(at)
        store = LocalStore(here, disk=FaultDisk(fault))
        try:
            store.put_new("a/b/c", iter([body, body]))
        except UnknownOutcomeError as error:
            assert fault.operations[at - 1] == "sync_folder"
            assert store.get("a/b/c") == body * 2
            assert isinstance(error.__cause__, OSError)
        except StoreUnavailableError as error:
            assert list(LocalStore(here).list("")) == []
            assert isinstance(error.__cause__, OSError)
            assert error.__cause__.errno == number
        else:
            assert not fault.fired or fault.operations[at - 1] == "remove"
        if not fault.fired:
            break
        reached += 1
        left = LocalStore(here).leftovers()
        assert len(left) == (1 if fault.operations[at - 1] == "remove" else 0)
        assert LocalStore(here).put_new("a/b/c", body * 2).sha256
        assert LocalStore(here).get("a/b/c") == body * 2
    assert reached >= 12


def test_a_disk_that_stays_broken_changes_nothing(root: Path) -> None:
    LocalStore(root).put_new("kept", b"kept")
    for at in range(1, 6):
        store = LocalStore(root, disk=FaultDisk(Fault(disk_error(errno.EIO), at=at, forever=True)))
        with pytest.raises((StoreUnavailableError, UnknownOutcomeError)):
            store.put_new(f"new-{at}", b"x")
        assert store.get("kept") == b"kept"


def test_short_writes_are_continued(root: Path) -> None:
    class Shy(Disk):
        def write(self, file: int, data: memoryview) -> int:
            return super().write(file, data[: max(1, len(data) // 3)])

    body = bytes(range(256)) * 4096
    LocalStore(root, disk=Shy()).put_new("a", body)
    assert LocalStore(root).get("a") == body


def test_a_link_whose_reply_is_lost_is_known_to_be_made(root: Path) -> None:
    rehearsal = Fault()
    root.mkdir()
    LocalStore(root / "rehearsal", disk=FaultDisk(rehearsal)).put_new("a/b", b"x")
    fault = Fault(disk_error(errno.EIO), at=rehearsal.operations.index("link") + 1, when="after")
    store = LocalStore(root / "real", disk=FaultDisk(fault))
    assert store.put_new("a/b", b"x").outcome is Put.WRITTEN
    assert fault.fired
    assert fault.operations == rehearsal.operations
    assert store.get("a/b") == b"x"


def test_a_folder_that_cannot_be_synced_makes_the_outcome_unknown_until_it_can(root: Path) -> None:
    LocalStore(root).put_new("a/first", b"x")
    fault = Fault(disk_error(errno.EIO), at=5)
    store = LocalStore(root, disk=FaultDisk(fault))
    with pytest.raises(UnknownOutcomeError):
        store.put_new("a/b", b"x")
    assert fault.operations[4] == "sync_folder"
    assert store.put_new("a/b", b"x").outcome is Put.ALREADY_MINE
    assert fault.operations[-3:] == ["sync_folder"] * 3


def fill(root: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    store = LocalStore(root)
    store.put_new("small", b"x" * 1000)
    with pytest.raises(StoreUnavailableError):
        store.put_new("large", itertools.repeat(b"x" * 300_000, 10))
    assert [key for key, _ in store.list("")] == ["small"]
    assert store.leftovers() == []


def test_a_real_limit_on_the_size_of_files_is_a_typed_error(root: Path) -> None:
    assert in_a_child(fill, str(root)) == 0


def run_out_of_files(root: str) -> None:
    store = LocalStore(root)
    store.put_new("a/b/c", b"x")
    top = os.open("/", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (top + 12, top + 12))
    held: list[int] = []
    failed = 0
    while True:
        try:
            store.put_new(f"a/b/{len(held)}", b"x")
            store.get("a/b/c")
            list(store.list("a"))
        except StoreUnavailableError as error:
            assert isinstance(error.__cause__, OSError)
            assert error.__cause__.errno == errno.EMFILE
            failed += 1
        try:
            held.append(os.open("/", os.O_RDONLY))
        except OSError:
            break
    assert failed >= 3
    for file in held:
        os.close(file)
    store.put_new("a/b/after", b"x")
    assert store.leftovers() == []


def test_running_out_of_file_descriptors_is_a_typed_error_and_leaks_none(root: Path) -> None:
    assert in_a_child(run_out_of_files, str(root)) == 0


# --- the probe --------------------------------------------------------------------------------------------


def look_without_rights(root: str) -> None:
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 65534)
    with pytest.raises(UnusableRootError) as caught:
        probe(LocalStore(root))
    error = caught.value
    assert (error.field, error.value) == ("root", root)
    assert error.rule == "a folder that this user can write"
    assert error.remedy


def test_the_probe_refuses_a_root_that_cannot_be_written(root: Path) -> None:
    root.mkdir(mode=0o500)
    for folder in root.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    assert in_a_child(look_without_rights, str(root)) == 0
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_the_probe_refuses_a_file_system_without_hard_links(root: Path, number: int) -> None:
    class NoLinks(Disk):
        def link(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
            raise OSError(number, os.strerror(number))

    with pytest.raises(UnusableRootError) as caught:
        probe(LocalStore(root, disk=NoLinks()))
    error = caught.value
    assert (error.field, error.value) == ("root", str(root))
    assert "hard links" in str(error.rule)
    assert error.remedy
    assert LocalStore(root).leftovers() == []


def test_the_probe_refuses_a_file_system_whose_folders_cannot_be_synced(root: Path) -> None:
    class NoFolderSync(Disk):
        def sync_folder(self, folder: int) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    for here in (root, root):  # the root is missing, then it is there
        with pytest.raises(UnusableRootError) as caught:
            probe(LocalStore(here, disk=NoFolderSync()))
        assert "synced" in str(caught.value.rule)


def test_the_probe_refuses_a_disk_that_replaces(root: Path) -> None:
    class Replaces(Disk):
        def link(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
            os.replace(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    class Blind(LocalStore):
        def head(self, key: str) -> int | None:
            return None

    with pytest.raises(UnusableRootError, match="replaces"):
        probe(Blind(root, disk=Replaces()))


def test_the_probe_says_when_the_store_only_did_not_answer(root: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        probe(LocalStore(root, disk=FaultDisk(Fault(disk_error(errno.EIO), at=4))))


def test_the_probe_leaves_its_canary_where_deleting_is_forbidden(root: Path) -> None:
    class Keeps(LocalStore):
        def delete(self, key: str) -> None:
            raise StoreUnavailableError("the policy forbids it")

    store = Keeps(root)
    probe(store)
    assert len(list(store.list("probes"))) == 1


# --- death ------------------------------------------------------------------------------------------------

FIRST, SECOND = b"first" * 1000, b"second" * 1000


def put_and_die(root: str, at: int, when: str) -> None:
    fault = Fault(kill, at=at, when="before" if when == "before" else "after")
    store = LocalStore(root, disk=FaultDisk(fault))
    store.put_new("a/b/first", iter([FIRST[:2500], FIRST[2500:]]))
    Path(root, "Acknowledged").touch()
    store.put_new("a/b/second", SECOND)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_system_call_leaves_whole_keys_and_loses_no_acknowledged_one(
    root: Path, when: str
) -> None:
    died = 0
    for at in itertools.count(1):  # covers F1, I1, I2, I10
        here = root / str(at)
        here.parent.mkdir(exist_ok=True)
        code = in_a_child(put_and_die, str(here), at, when)
        store = LocalStore(here)
        held = {key: store.get(key) for key, _ in store.list("")}
        assert held.items() <= {"a/b/first": FIRST, "a/b/second": SECOND}.items()
        assert not (here / "Acknowledged").exists() or "a/b/first" in held
        if code == 0:
            break
        assert code == -signal.SIGKILL
        died += 1
        assert len(store.leftovers()) <= 1
        # A second life ends as an undisturbed first one does.
        for key, body in (("a/b/first", FIRST), ("a/b/second", SECOND)):
            expected = Put.ALREADY_MINE if key in held else Put.WRITTEN
            assert store.put_new(key, body).outcome is expected
    print(f"{died} kills {when} a system call")
    assert died >= 18


# --- races ------------------------------------------------------------------------------------------------

WRITERS, KEYS = 8, 200


def put_all(root: str, writer: int, barrier: Barrier) -> None:
    store = LocalStore(root)
    won = []
    barrier.wait(60)
    for i in range(KEYS):
        try:
            if store.put_new(f"keys/{i // 50}/{i}", b"writer %d" % writer).outcome is Put.WRITTEN:
                won.append(str(i))
        except ConflictError:
            pass
    Path(root, f"Won-{writer}").write_text(" ".join(won))


def test_of_eight_processes_exactly_one_wins_each_key(root: Path) -> None:  # covers F8, I2
    root.mkdir()
    barrier = processes.Barrier(WRITERS)
    writers = [processes.Process(target=put_all, args=(str(root), n, barrier)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
        writer.close()
    winners: dict[int, list[int]] = {i: [] for i in range(KEYS)}
    for n in range(WRITERS):
        for i in map(int, (root / f"Won-{n}").read_text().split()):
            winners[i].append(n)
    store = LocalStore(root)
    for i, won in winners.items():
        assert len(won) == 1, (i, won)
        assert store.get(f"keys/{i // 50}/{i}") == b"writer %d" % won[0]
    assert store.leftovers() == []
    assert len({won[0] for won in winners.values()}) > 1, "the writers never met"


def test_a_reader_never_sees_part_of_an_object(root: Path) -> None:
    body = b"x" * 3_000_000
    child = processes.Process(target=put_slowly, args=(str(root),))
    child.start()
    store = LocalStore(root)
    looks = 0
    while child.is_alive() or looks == 0:
        try:
            assert store.get("large") == body
        except NotFoundError:
            pass
        assert store.head("large") in (None, len(body))
        looks += 1
    child.join()
    child.close()
    assert store.get("large") == body
    print(f"{looks} looks")


def put_slowly(root: str) -> None:
    LocalStore(root).put_new("large", itertools.repeat(b"x" * 30_000, 100))


def test_every_error_of_a_put_is_of_the_raykit_tree(root: Path) -> None:
    root.write_bytes(b"")
    with pytest.raises(RaykitError):
        LocalStore(root).put_new("a", b"x")
