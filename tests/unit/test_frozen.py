"""Frozen code: what is taken, that equal folders are equal bytes, and that a stored tar is not a way out.

covers CONTRACT-13 CONTRACT-20, S11, I14
"""

from __future__ import annotations

import errno
import io
import os
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plainrun import write_job

from raykit.cli.main import main
from raykit.errors import CorruptError, PlanError
from raykit.ids import sha256
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.testing.memory import MemoryStore
from raykit.train import facts, frozen, revision
from raykit.train.frozen import (
    environment,
    folder_files,
    pack,
    read_code,
    read_environment,
    unpack,
    write_code,
    write_environment,
)
from raykit.train.revision import Git, git_of

PLAN = b'schema = 1\nname = "x"\nrecipe = "recipe:Tiny"\n'


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def a_checkout(path: Path, files: dict[str, bytes]) -> Callable[..., str]:
    """A git clone in which `files` are committed; returns `git`."""
    folder(path, files)

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        done = subprocess.run(
            ["git", "-C", str(path), *identity, *arguments], capture_output=True, check=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", "-f", ".")
    git("commit", "-q", "-m", "one")
    return git


# --- what is taken ------------------------------------------------------------------------------------------

CODE = {
    "recipe.py": b"x = 1\n",
    "deep/er/helper.py": b"y = 2\n",
    "config.toml": b'recipe_of_the_day = "soup:hot"\n[run]\nrecipe = "a:B"\n',
    "table.csv": b"a,b\n1,2\n",
    "words.txt": b"one two\n",
}
NOT_CODE = {
    "README.md": b"read me\n",
    "runs/experiments/e/runs/main/run.json": b"{}",
    "plan.toml": PLAN,
    "deep/sweep.toml": b"recipe   =   'recipe:Tiny'\n",
    ".env": b"SECRET=1\n",
    ".git/config": b"x",
    "__pycache__/recipe.cpython-311.pyc": b"x",
    "store/experiments/x.json": b"{}",
    "data.npy": b"x",
    "uv.lock": b"x",
    "weights.pt": b"x",
}


def test_code_is_taken_and_nothing_else(tmp_path: Path) -> None:
    """Not the plans either, which are frozen by themselves: their edits are compared field by field."""
    assert folder_files(folder(tmp_path, CODE | NOT_CODE)) == CODE


def test_large_files_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "MAX_FILE_BYTES", 10)
    found = folder_files(folder(tmp_path, {"small.json": b"1" * 10, "large.json": b"1" * 11}))
    assert found == {"small.json": b"1" * 10}


def test_a_folder_with_too_much_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "MAX_CODE_BYTES", 10)
    with pytest.raises(PlanError, match="holds more than") as refusal:
        folder_files(folder(tmp_path, {"a.py": b"1" * 6, "b.py": b"1" * 6}))
    assert refusal.value.remedy == "put the recipe in a folder of its own"


def test_a_link_within_the_folder_is_followed_and_one_out_of_it_refused(tmp_path: Path) -> None:
    inside = folder(tmp_path / "in", {"a.py": b"1"})
    (inside / "b.py").symlink_to(inside / "a.py")
    assert folder_files(inside) == {"a.py": b"1", "b.py": b"1"}
    outside = folder(tmp_path / "out", {"secret.py": b"2"})
    (inside / "c.py").symlink_to(outside / "secret.py")
    with pytest.raises(PlanError, match=r"c\.py is a link out of the recipe's folder"):
        folder_files(inside)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # a socket's path is short


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def a_link_to_nothing_elsewhere(path: Path) -> None:
    path.symlink_to("/nothing/at/all")


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_a_folder(path: Path) -> None:
    path.symlink_to(path.parent)


NO_FILES = [
    a_pipe,
    a_socket,
    a_loop,
    a_link_to_nothing,
    a_link_to_nothing_elsewhere,
    a_device,
    a_folder,
    a_link_to_a_folder,
]


@pytest.mark.parametrize("name", ["odd.py", "odd.toml", "odd"])
@pytest.mark.parametrize("make", NO_FILES, ids=lambda make: make.__name__)
def test_what_is_no_file_is_no_code(
    make: Callable[[Path], None], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is waited for, read without end, or an accident."""
    monkeypatch.chdir(folder(tmp_path, {"a.py": b"1"}))
    make(tmp_path / name)
    assert folder_files(tmp_path) == {"a.py": b"1"}


def refused(path: Path) -> PlanError:
    with pytest.raises(PlanError) as refusal:
        folder_files(path)
    assert refusal.value.field == "recipe"
    assert refusal.value.rule
    assert refusal.value.remedy
    return refusal.value


@pytest.mark.parametrize("name", [b"m\xff.py", b"deep\xff/m.py", b"two\nlines.py", b"\x1b[2J.toml"])
def test_a_name_that_cannot_be_printed_is_refused(name: bytes, tmp_path: Path) -> None:
    folder(tmp_path, {os.fsdecode(name): b"1"})
    message = refused(tmp_path).message
    assert "has a name that cannot be printed" in message
    message.encode()


def test_what_is_no_code_may_have_any_name(tmp_path: Path) -> None:
    folder(tmp_path, {"a.py": b"1", os.fsdecode(b"\xff\n.npy"): b"1"})
    assert folder_files(tmp_path) == {"a.py": b"1"}


@pytest.mark.parametrize("name", ["m.py", "locked"])
def test_what_cannot_be_read_is_refused_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be code. Said by the kernel for everyone but root, so said here in its place."""
    folder(tmp_path, {"m.py": b"1", "locked/m.py": b"1"})

    def denying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *given: Any) -> Any:
            if str(path) == str(tmp_path / name):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *given)

        return call

    monkeypatch.setattr(os, "open", denying(os.open))
    monkeypatch.setattr(os, "scandir", denying(os.scandir))
    assert refused(tmp_path).message == f"{tmp_path / name} cannot be read: Permission denied"


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder that the usual clean-up, which recurses, is spared."""
    yield tmp_path
    subprocess.run(["rm", "-rf", str(tmp_path)], check=True)


def test_folders_deeper_than_python_recurses_are_refused(deep: Path) -> None:
    """Not here, perhaps, but where a worker unpacks them."""
    parent = deep
    for _ in range(1100):
        parent = parent / "d"
        parent.mkdir()
    (parent / "m.py").touch()
    assert "cannot be printed, or is too long" in refused(deep).message


def test_a_folder_too_deep_to_be_named_is_refused(deep: Path) -> None:
    here = os.open(deep, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert refused(deep).message.endswith("cannot be read: File name too long")


def test_a_module_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike data it would be missed, and only where the workers are."""
    monkeypatch.setattr(frozen, "MAX_FILE_BYTES", 10)
    folder(tmp_path, {"large.py": b"1" * 11})
    assert "large.py is a module of more than" in refused(tmp_path).message


# --- the tar ------------------------------------------------------------------------------------------------


def test_equal_folders_are_equal_bytes(tmp_path: Path) -> None:
    """Whoever wrote them, whenever, in which order and with which mode."""
    first = folder(tmp_path / "first", CODE)
    second = folder(tmp_path / "second", dict(reversed(CODE.items())))
    os.utime(second / "recipe.py", (1, 1))
    (second / "recipe.py").chmod(0o777)
    assert pack(folder_files(first)) == pack(folder_files(second))
    assert pack(CODE) != pack(CODE | {"recipe.py": b"x = 2\n"})
    assert pack(CODE) != pack({"renamed.py" if name == "recipe.py" else name: CODE[name] for name in CODE})


NAMES = {
    "plain": "recipe.py",
    "deep": "/".join(["folder"] * 40) + "/recipe.py",
    "long": "a" * 200 + ".py",
    "not ascii": "rezept-für-später.py",
}


@pytest.mark.parametrize("name", NAMES)
def test_code_comes_back_from_the_store_as_it_was(name: str, tmp_path: Path) -> None:
    files = {NAMES[name]: b"x = 1\n", "empty.py": b"", "binary.txt": bytes(range(256))}
    store = LocalStore(tmp_path / "store")
    digest = write_code(store, "x", pack(files))
    assert write_code(store, "x", pack(files)) == digest
    found = read_code(store, "x", digest)
    assert found == files
    (tmp_path / "code").mkdir()
    unpack(found, tmp_path / "code")
    assert folder_files(tmp_path / "code") == files


def stored(data: bytes, *, digest: str | None = None) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    digest = digest or sha256(data)
    store.put_new(layout.code("x", digest), data)
    return store, digest


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b"x" if kind == tarfile.REGTYPE else b""


OUT: dict[str, tuple[tarfile.TarInfo, bytes]] = {
    "an absolute name": member("/etc/passwd"),
    "a name that leaves": member("../outside.py"),
    "a name that leaves from within": member("a/../../outside.py"),
    "a symbolic link": member("link.py", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": member("link.py", tarfile.LNKTYPE, "recipe.py"),
    "a folder": member("folder", tarfile.DIRTYPE),
    "a device": member("device", tarfile.CHRTYPE),
    "a pipe": member("pipe", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("what", OUT)
def test_a_tar_that_holds_more_than_plain_files_is_refused(what: str) -> None:
    """Its digest holds: somebody froze it so."""
    store, digest = stored(tar_of(member("recipe.py"), OUT[what]))
    with pytest.raises(CorruptError, match="which is not a plain file below it"):
        read_code(store, "x", digest)


def test_code_that_is_not_what_its_name_says_is_refused() -> None:
    store, digest = stored(pack(CODE), digest=sha256(b"other"))
    with pytest.raises(CorruptError, match="does not match its sha256"):
        read_code(store, "x", digest)


def test_code_that_is_not_there_is_refused() -> None:
    with pytest.raises(CorruptError, match="is missing"):
        read_code(MemoryStore(), "x", sha256(b""))


# --- what a change of code leaves ---------------------------------------------------------------------------

PROGRAM = b"def f(x):\n    return x + 1\n"
EDITS: dict[str, tuple[bytes | None, bytes | None, str]] = {
    "another program": (PROGRAM, PROGRAM.replace(b"1", b"2"), "inexact"),
    "a comment": (PROGRAM, b"# one more\n" + PROGRAM, "exact"),
    "layout": (PROGRAM, b"def f( x ):\n\n    return (x+1)\n", "exact"),
    "a docstring": (PROGRAM, b'def f(x):\n    "Add."\n    return x + 1\n', "inexact"),
    "a new module": (None, PROGRAM, "inexact"),
    "a file less": (PROGRAM, None, "inexact"),
    "what does not parse": (PROGRAM, b"def f(:\n", "inexact"),
    "what never parsed": (b"def f(:\n", b"def g(:\n", "inexact"),
    "nulls": (PROGRAM, b"\0", "inexact"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_only_comments_and_layout_leave_a_resume_exact(edit: str) -> None:
    """A docstring can be read by a program, so it is part of it."""
    was, now, leaves = EDITS[edit]
    before, after = ({"same.py": b"1"} | ({} if data is None else {"a.py": data}) for data in (was, now))
    (found,) = facts.of_code(before, after)
    assert found.what == "code file a.py"
    assert found.allows == leaves
    assert (found.was == "absent") == (was is None)
    assert (found.now == "absent") == (now is None)


def test_a_comment_in_what_is_no_program_is_a_change() -> None:
    (new,) = facts.of_code({}, {"notes.txt": b"looks good\n"})
    assert (new.allows, new.was) == ("exact", "absent") and new.now.endswith("(new)")
    (found,) = facts.of_code({"a.csv": b"1,2\n"}, {"a.csv": b"1, 2\n"})
    assert found.allows == "inexact"


# --- the environment ----------------------------------------------------------------------------------------


def test_the_environment_has_the_revision_and_the_difference(tmp_path: Path) -> None:
    """A clean tree is never demanded: what differs is kept."""
    git = a_checkout(tmp_path, {"recipe.py": b"x = 1\n"})
    clean = environment(git_of(tmp_path))
    assert (clean.git_revision, clean.git_dirty, clean.git_diff) == (git("rev-parse", "HEAD"), False, None)
    folder(tmp_path, {"recipe.py": b"x = 2\n"})
    dirty = environment(git_of(tmp_path))
    assert dirty.git_dirty
    assert "-x = 1\n+x = 2" in (dirty.git_diff or "")
    assert clean.packages["torch"]


def test_the_environment_outside_of_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    record = environment(git_of(tmp_path))
    assert (record.git_revision, record.git_dirty, record.git_diff) == (None, None, None)
    store = MemoryStore()
    digest = write_environment(store, "x", record)
    assert sha256(store.get(layout.environment("x", digest))) == digest
    assert write_environment(store, "x", environment(git_of(tmp_path))) == digest
    assert read_environment(store, "x", digest) == record


def test_an_environment_that_is_not_what_its_name_says_is_refused() -> None:
    store, digest = MemoryStore(), sha256(b"other")
    with pytest.raises(CorruptError, match="is missing"):
        read_environment(store, "x", digest)
    store.put_new(layout.environment("x", digest), b"{}")
    with pytest.raises(CorruptError, match="does not match its sha256"):
        read_environment(store, "x", digest)


# --- what git does not track --------------------------------------------------------------------------------


def test_frozen_files_that_git_does_not_track_make_the_difference(tmp_path: Path) -> None:
    """Ignored ones, too: a revision that lacks them is not what ran."""
    a_checkout(tmp_path, {"recipe.py": b"x = 1\n", ".gitignore": b"ignored.py\n"})
    folder(tmp_path, {"new.py": b"", "ignored.py": b"", "plan.toml": PLAN, "notes.md": b"not frozen"})
    found = git_of(tmp_path, folder_files(tmp_path), plan=tmp_path / "plan.toml")
    assert (found.dirty, found.diff) == (True, "?? ignored.py\n?? new.py\n?? plan.toml\n")


def test_what_is_tracked_and_as_it_was_makes_none(tmp_path: Path) -> None:
    a_checkout(tmp_path, {"recipe.py": b"x = 1\n", "später.py": b"", "plan.toml": PLAN})
    found = git_of(tmp_path, folder_files(tmp_path), plan=tmp_path / "plan.toml")
    assert (found.dirty, found.diff) == (False, None)


def test_a_plan_elsewhere_is_held_against_the_same_revision(tmp_path: Path) -> None:
    a_checkout(tmp_path / "clone", {"jobs/recipe.py": b"", "plans/one.toml": PLAN})
    jobs, plan = tmp_path / "clone" / "jobs", tmp_path / "clone" / "plans" / "one.toml"
    assert git_of(jobs, ["recipe.py"], plan=plan).dirty is False
    plan.write_bytes(PLAN + b"# more\n")
    edited = git_of(jobs, ["recipe.py"], plan=plan)
    assert edited.dirty
    assert "+# more" in (edited.diff or "")
    folder(tmp_path, {"outside.toml": PLAN})
    assert git_of(jobs, ["recipe.py"], plan=tmp_path / "outside.toml").diff == "?? ../../outside.toml\n"


def test_a_difference_that_is_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_checkout(tmp_path, {"a.py": b""})
    monkeypatch.setattr(revision, "MAX_DIFF_CHARS", 10)
    found = git_of(tmp_path, ["untracked.py"])
    assert found.diff == "?? untrack\n(cut here: 6 characters more)\n"


def test_a_repository_without_a_revision_has_none_to_name(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert git_of(tmp_path) == Git()


# --- from the command line ----------------------------------------------------------------------------------


def test_odd_files_beside_a_plan_stop_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those that cannot be code; one that may be is a finding like any other, exit code 2."""
    plan = write_job(tmp_path / "job")
    monkeypatch.chdir(plan.parent)
    check = ["plan", "check", "plan.toml", "--root", str(tmp_path / "store")]
    assert main(check) == 0
    before = (plan.parent / "plan.lock").read_bytes()
    for number, make in enumerate(NO_FILES):
        make(plan.parent / f"odd{number}.toml")
        make(plan.parent / f"odd{number}.py")
    assert main(check) == 0
    assert (plan.parent / "plan.lock").read_bytes() == before
    folder(plan.parent, {os.fsdecode(b"m\xff.py"): b""})
    assert main(check) == 2
    assert "m\\xff.py has a name that cannot be printed" in capfd.readouterr().err
