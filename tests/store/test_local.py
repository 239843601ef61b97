"""The store in a folder: modes, links, clashes, and what is on the disk at each step."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raykit.errors import ConflictError, CorruptError, NotFoundError, StoreUnavailableError, UnsafeNameError
from raykit.store import Listed, LocalStore, Put
from raykit.store.base import ObjectStore
from raykit.testing import Fault, FaultDisk
from raykit.testing.stores import BAD_KEYS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def tree(folder: Path) -> dict[str, str]:
    """Every path under `folder` with its type and mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        found[str(path.relative_to(folder))] = f"{stat.filemode(mode)[0]}{stat.S_IMODE(mode):03o}"
    return found


# --- what is written --------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_first_put(root: Path) -> None:
    store = LocalStore(root)
    assert store.head("a") is None
    assert list(store.list("")) == []
    assert store.leftovers() == []
    store.delete("a/b")
    with pytest.raises(NotFoundError):
        store.get("a/b")
    assert not root.exists()


def test_files_and_folders_are_private_whatever_the_umask(root: Path) -> None:  # covers S17
    old = os.umask(0)
    try:
        store = LocalStore(root / "deeper" / "still")
        store.put_new("a/b/c", b"x")
        store.put_derived("a/d", b"x")
    finally:
        os.umask(old)
    assert tree(root.parent) == {
        "root": "d700",
        "root/deeper": "d700",
        "root/deeper/still": "d700",
        "root/deeper/still/.tmp": "d700",
        "root/deeper/still/a": "d700",
        "root/deeper/still/a/b": "d700",
        "root/deeper/still/a/b/c": "-600",
        "root/deeper/still/a/d": "-600",
    }


def test_putting_the_same_bytes_again_writes_nothing(root: Path) -> None:  # covers I11
    LocalStore(root).put_new("a/b", b"bytes")
    fault = Fault()
    again = LocalStore(root, disk=FaultDisk(fault))
    for _ in range(2):
        assert again.put_new("a/b", iter([b"by", b"tes"])).outcome is Put.ALREADY_MINE
    with pytest.raises(ConflictError):
        again.put_new("a/b", b"other")
    assert set(fault.operations) == {"sync_folder"}


def test_leftovers_names_what_a_dead_writer_left(root: Path) -> None:
    store = LocalStore(root)
    store.put_new("a", b"x")
    assert store.leftovers() == []
    for name in ("2-b", "1-a"):
        (root / ".tmp" / name).write_bytes(b"half")
    assert store.leftovers() == [".tmp/1-a", ".tmp/2-b"]
    assert [key for key, _ in store.list("")] == ["a"]


def test_the_temporary_file_is_seen_while_the_stream_runs_and_the_key_is_not(root: Path) -> None:
    store = LocalStore(root)
    seen: list[object] = []

    def pieces() -> Iterator[bytes]:
        yield b"half"
        seen.extend([len(store.leftovers()), store.head("a/b"), list(store.list(""))])
        yield b"whole"

    store.put_new("a/b", pieces())
    assert seen == [1, None, []]
    assert store.leftovers() == []


def test_a_listing_ignores_what_raykit_did_not_name(root: Path) -> None:
    store = LocalStore(root)
    store.put_new("a/b", b"x")
    for name in ("a/README", "a/.hidden", "a/with space", "a/caf\u00e9"):
        (root / name).write_bytes(b"foreign")
    (root / "Folder").mkdir()
    (root / "Folder" / "file").write_bytes(b"foreign")
    assert list(store.list("")) == [Listed("a/b", 1)]


def test_a_tree_deeper_than_any_key_is_not_followed(root: Path) -> None:
    store = LocalStore(root)
    store.put_new("key", b"x")
    here = os.open(root, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert [key for key, _ in store.list("")] == ["key"]
    subprocess.run(["rm", "-rf", str(root)], check=True)


def test_a_store_can_be_sent_to_another_process(root: Path) -> None:
    store = LocalStore(root)
    store.put_new("a", b"x")
    copy: ObjectStore = pickle.loads(pickle.dumps(store))
    assert copy.url == store.url == str(root)
    assert copy.get("a") == b"x"


def test_a_relative_root_stays_where_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    monkeypatch.chdir(root)
    store = LocalStore("store")
    monkeypatch.chdir(root.parent)
    store.put_new("a", b"x")
    assert (root / "store" / "a").read_bytes() == b"x"


# --- keys under keys --------------------------------------------------------------------------------------


def test_a_key_cannot_be_a_folder_of_keys_as_well(root: Path) -> None:
    store = LocalStore(root)
    store.put_new("a", b"x")
    store.put_new("b/c", b"x")
    for put in (store.put_new, store.put_derived):
        for key in ("a/b", "a/b/c", "b"):
            with pytest.raises(ConflictError):
                put(key, b"x")
    assert [key for key, _ in store.list("")] == ["a", "b/c"]
    assert store.leftovers() == []
    store.delete("b")
    store.delete("a/b")
    assert [key for key, _ in store.list("")] == ["a", "b/c"]


def test_a_root_that_is_a_file_is_refused(root: Path) -> None:
    root.write_bytes(b"a file")
    store = LocalStore(root)
    with pytest.raises(StoreUnavailableError):
        store.put_new("a", b"x")
    with pytest.raises(NotFoundError):
        store.get("a")
    assert root.read_bytes() == b"a file"


# --- links and other foreign things --------------------------------------------------------------- S11 S17


def every_verb_refuses(store: LocalStore, key: str) -> None:
    for verb in (store.get, store.open, store.head):
        with pytest.raises(CorruptError):
            verb(key)
    with pytest.raises(CorruptError):
        store.put_new(key, b"x")
    with pytest.raises(CorruptError):
        list(store.list(""))


def test_a_symbolic_link_in_the_place_of_an_object_is_refused(root: Path) -> None:
    outside = root.parent / "outside"
    outside.write_bytes(b"secret")
    store = LocalStore(root)
    store.put_new("a/b", b"x")
    for target in (outside, root / "a" / "b", Path("dangling")):
        (root / "a" / "link").symlink_to(target)
        every_verb_refuses(store, "a/link")
        (root / "a" / "link").unlink()
    assert outside.read_bytes() == b"secret"


def test_a_derived_file_replaces_a_link_and_not_its_target(root: Path) -> None:
    outside = root.parent / "outside"
    outside.write_bytes(b"secret")
    store = LocalStore(root)
    store.put_derived("a/page", b"x")
    (root / "a" / "page").unlink()
    (root / "a" / "page").symlink_to(outside)
    store.put_derived("a/page", b"drawn")
    assert store.get("a/page") == b"drawn"
    assert outside.read_bytes() == b"secret"


def test_a_symbolic_link_in_the_place_of_a_folder_is_refused(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "b").write_bytes(b"secret")
    store = LocalStore(root)
    store.put_new("c", b"x")
    (root / "a").symlink_to(outside, target_is_directory=True)
    every_verb_refuses(store, "a/b")
    with pytest.raises(CorruptError):
        store.put_derived("a/new", b"x")
    with pytest.raises(CorruptError):
        store.delete("a/b")
    with pytest.raises(CorruptError):
        list(store.list("a"))
    assert tree(outside) == {"b": "-644"}


def test_a_temporary_folder_that_is_a_link_is_refused(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    root.mkdir()
    (root / ".tmp").symlink_to(outside, target_is_directory=True)
    store = LocalStore(root)
    for put in (store.put_new, store.put_derived):
        with pytest.raises(CorruptError):
            put("a", b"x")
    with pytest.raises(CorruptError):
        store.leftovers()
    assert tree(outside) == {}


def test_a_pipe_or_a_socket_is_refused_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put_new("a", b"x")
    os.mkfifo(root / "special")
    every_verb_refuses(store, "special")
    (root / "special").unlink()
    monkeypatch.chdir(root)  # the path of a socket may only be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("special")
        every_verb_refuses(store, "special")


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root.parent / "real").mkdir()
    root.symlink_to(root.parent / "real", target_is_directory=True)
    store = LocalStore(root)
    store.put_new("a/b", b"x")
    assert store.get("a/b") == b"x"
    assert (root.parent / "real" / "a" / "b").exists()


def test_a_folder_swapped_for_a_link_never_leads_outside(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    store = LocalStore(root)
    store.put_new("a/first", b"x")
    (root / "Link").symlink_to(outside, target_is_directory=True)
    stop = threading.Event()
    end = time.monotonic() + 20

    def swap() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        while not stop.is_set():
            # Exchange the two names in one step, so that `a` is always one or the other.
            assert libc.renameat2(-100, os.fsencode(root / "a"), -100, os.fsencode(root / "Link"), 2) == 0

    swapper = threading.Thread(target=swap)
    swapper.start()
    written = refused = 0
    try:
        while (written < 50 or refused < 50) and time.monotonic() < end:
            try:
                store.put_new(f"a/{written + refused}", b"x")
                written += 1
            except (CorruptError, StoreUnavailableError):
                refused += 1
    finally:
        stop.set()
        swapper.join()
    assert tree(outside) == {}
    assert written
    assert refused


# --- names --------------------------------------------------------------------------------------- S11, 2.7

part = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["..", ".", "", "a", "b.c", ".tmp", "a\x00", "\udcff", "/", "\\", "%2e%2e", "x" * 128]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.lists(part, max_size=6).map("/".join) | st.sampled_from(BAD_KEYS))
def test_no_key_escapes_the_root(tmp_path: Path, key: str) -> None:
    root = tmp_path / "jail" / "root"
    store = LocalStore(root)
    try:
        store.put_new(key, b"x")
    except (UnsafeNameError, ConflictError):
        pass
    else:
        assert (root / key).resolve().is_relative_to(root.resolve())
        assert (root / key).read_bytes() == b"x"
    assert {path.name for path in tmp_path.iterdir()} <= {"jail"}
    assert not root.exists() or [path.name for path in (tmp_path / "jail").iterdir()] == ["root"]


# --- order of the system calls --------------------------------------------------------------------- 2.9, F3

PUT = """
import sys
from raykit.store import LocalStore
LocalStore(sys.argv[1]).put_new("a/b", b"bytes")
"""


def system_calls(root: Path) -> list[str]:
    """What one put in a fresh root asks of the kernel: of strace where there is one, else of the disk."""
    if shutil.which("strace") is None:
        fault = Fault()
        LocalStore(root, disk=FaultDisk(fault)).put_new("a/b", b"bytes")
        return fault.operations
    log = root.parent / "strace"
    trace = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=fsync,linkat,unlinkat,mkdirat,write"]
    subprocess.run([*trace, sys.executable, "-c", PUT, str(root)], check=True)
    names = {"mkdirat": "make_folder", "linkat": "link", "unlinkat": "remove", "write": "write"}
    found = []
    for line in log.read_text().splitlines():
        match = re.search(r"\d+ +(\w+)\((\S+)", line)
        if match and str(root.parent) in line:
            call, first = match.groups()
            file = "/.tmp/" in first
            found.append(names.get(call, "sync" if file else "sync_folder"))
    return found


def test_bytes_are_durable_before_the_link_and_the_link_before_the_answer(root: Path) -> None:
    calls = system_calls(root)
    assert [call for call in calls if call != "create"] == [
        "make_folder",  # the root
        "sync_folder",  # the folder that holds it
        "make_folder",  # .tmp
        "write",
        "sync",
        "make_folder",  # a
        "link",
        "sync_folder",  # a, which holds b
        "sync_folder",  # the root, which holds a
        "sync_folder",  # the folder that holds the root, which another process may have made
        "remove",
    ]


def test_a_folder_is_synced_once(root: Path) -> None:
    fault = Fault()
    store = LocalStore(root, disk=FaultDisk(fault))
    store.put_new("a/b/c", b"x")
    fault.operations.clear()
    store.put_new("a/b/d", b"x")
    assert fault.operations == ["create", "write", "sync", "link", "sync_folder", "remove"]


def test_a_folder_that_was_removed_and_made_again_is_synced_again(root: Path) -> None:
    fault = Fault()
    store = LocalStore(root, disk=FaultDisk(fault))
    store.put_new("a/b/c", b"x")
    shutil.rmtree(root / "a")
    fault.operations.clear()
    store.put_new("a/b/c", b"x")
    assert fault.operations.count("make_folder") == 2
    assert fault.operations.count("sync_folder") == 3
