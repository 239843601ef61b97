"""What a job is sent: raykit itself as a wheel of this very content, the plan and its code, and nothing else.

covers FLEET-12 FLEET-14 DISP-01 DISP-02 DISP-13, S4
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from raykit.cli import entry
from raykit.cli.options import LAUNCH, TYPED
from raykit.errors import PlanError
from raykit.fleet.jobs import archive
from raykit.fleet.jobs.archive import Package, wheel, working_dir
from raykit.fleet.jobs.last import last_of
from raykit.fleet.package import package_digest, package_files
from raykit.fleet.site import SENT_GIT
from raykit.plan import load_plan
from raykit.read.planfile import read_plan_file
from raykit.train.find_recipe import recipe_folder
from raykit.train.owncode import own_files
from raykit.train.revision import Git

TINY = Path(__file__).parent.parent / "tiny"
TEAM = b'[claim]\nunit = "a"\ntarget = "b"\npopulation = "c"\nsuccess = "d"\n'


def unpacked(package: Package, folder: Path) -> Path:
    """As Ray does it on a node."""
    folder.mkdir()
    zipfile.ZipFile(io.BytesIO(package.data)).extractall(folder)
    return folder


def sent(folder: Path, plan: Path) -> Path:
    """The working directory of a plan, unpacked elsewhere."""
    data, read = read_plan_file(plan)
    code = own_files(read.recipe, recipe_folder(read.recipe, plan))
    package, at = working_dir(read, plan.name, data, code, Git())
    return unpacked(package, folder) / at


# --- raykit itself ------------------------------------------------------------------------------------------


def test_a_wheel_has_the_same_bytes_every_time() -> None:
    first, again = wheel(), wheel()
    assert first.data == again.data and first.name == again.name
    assert first.digest == package_digest() and first.digest[:16] in first.name
    assert first.name.endswith("-py3-none-any.zip")


def test_its_name_says_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another content never has the name that a cluster may have kept."""
    before = wheel()
    files = package_files() | {"raykit/ids.py": b"# edited\n"}
    monkeypatch.setattr(archive, "package_files", lambda: dict(files))
    after = wheel()
    assert after.name != before.name and after.digest != before.digest


def test_its_record_names_every_file_by_its_digest() -> None:
    with zipfile.ZipFile(io.BytesIO(wheel().data)) as opened:
        (record,) = [name for name in opened.namelist() if name.endswith("/RECORD")]
        lines = [line.rsplit(",", 2) for line in opened.read(record).decode().splitlines()]
        assert sorted(name for name, *_ in lines) == sorted(opened.namelist())
        for name, digest, size in lines:
            if name != record:
                data = opened.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={found}", str(len(data)))


def test_pip_takes_it_for_a_wheel(tmp_path: Path) -> None:
    """Whoever wants to install it can; it asks no registry for anything."""
    made = wheel()
    path = tmp_path / f"{made.name.removesuffix('.zip')}.whl"
    path.write_bytes(made.data)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--target",
        str(tmp_path / "at"),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "at" / "raykit" / "report" / "page" / "style.css").is_file()


def in_job(folder: Path, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "raykit.cli.entry", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )


def test_an_unpacked_wheel_runs_and_proves_that_it_is_what_was_sent(tmp_path: Path) -> None:
    """covers FLEET-12: the process that runs the command says which raykit it has; the checkout is not asked"""
    made = wheel()
    at = unpacked(made, tmp_path / "py_modules")
    done = in_job(tmp_path, "--launch", "abc", "--raykit", made.digest, "show", "no-such", path=at)
    assert f"sha256 {made.digest[:12]}, as it was sent" in done.stderr
    last = last_of(done.stdout)
    assert last is not None and last.launch == "abc" and last.exit_code == done.returncode == 2


def test_another_raykit_on_the_node_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """covers FLEET-12 DISP-01: passing tests in a checkout is not accepted; the digest differs, exit 5"""
    made = wheel()
    at = unpacked(made, tmp_path / "py_modules")
    (at / "raykit" / "ids.py").write_bytes(
        (at / "raykit" / "ids.py").read_bytes() + b"\n# patched on the node\n"
    )
    root = tmp_path / "store"
    done = in_job(
        tmp_path, "--launch", "abc", "--raykit", made.digest, "status", "--root", str(root), path=at
    )
    assert done.returncode == 5 and "was sent with the job" in done.stderr and not root.exists()
    last = last_of(done.stdout)
    assert last is not None and last.exit_code == 5


@pytest.mark.parametrize("code", range(8))
def test_the_job_ends_well_where_a_retry_would_come_to_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    """Done, refused and paused end well; whoever retries what failed would build a cluster to be refused again."""
    for name in (LAUNCH, TYPED, SENT_GIT):
        monkeypatch.setenv(name, "")  # put back afterwards
    monkeypatch.setattr(entry, "raykit", lambda command: code)
    ended = entry.main(["--launch", "abc", "--raykit", package_digest(), "launch", "plan.toml"])
    assert ended == (0 if code in (0, 3, 4) else code)
    last = last_of(capsys.readouterr().out)
    assert last is not None and last.exit_code == code
    assert os.environ[LAUNCH] == "abc"


# --- the working directory ----------------------------------------------------------------------------------


def test_nothing_travels_but_the_plan_and_its_own_code(tmp_path: Path) -> None:
    """No data, no store, no secret, no .git; code is what a launch would freeze."""
    job = tmp_path / "job"
    job.mkdir()
    for name in ("plan.toml", "recipe.py"):
        (job / name).write_bytes((TINY / name).read_bytes())
    (job / ".env").write_text("AWS_SECRET_ACCESS_KEY=not-for-you")
    (job / ".git").mkdir()
    (job / ".git" / "config").write_text("[user]")
    (job / "store").mkdir()
    (job / "store" / "log.json").write_text("{}")
    (job / "data.parquet").write_bytes(b"PAR1")
    (job / "other.toml").write_bytes((job / "plan.toml").read_bytes())
    at = sent(tmp_path / "sent", job / "plan.toml")
    found = sorted(
        str(p.relative_to(tmp_path / "sent")) for p in (tmp_path / "sent").rglob("*") if p.is_file()
    )
    assert found == ["git.json", "job/plan.toml", "job/recipe.py"]
    assert at.read_bytes() == (job / "plan.toml").read_bytes()


def test_the_code_is_the_same_code_there(tmp_path: Path) -> None:
    """covers DISP-02 DISP-13: the node computes the same lock, whatever has become of the checkout"""
    plan = TINY / "plan.toml"
    at = sent(tmp_path / "sent", plan)
    _, read = read_plan_file(at)
    assert own_files(read.recipe, recipe_folder(read.recipe, at)) == own_files(read.recipe, TINY)


def test_a_checkout_that_is_edited_afterwards_does_not_reach_the_job(tmp_path: Path) -> None:
    """covers FLEET-14: what was sent is bytes"""
    job = tmp_path / "job"
    job.mkdir()
    for name in ("plan.toml", "recipe.py"):
        (job / name).write_bytes((TINY / name).read_bytes())
    data, read = read_plan_file(job / "plan.toml")
    package, at = working_dir(read, "plan.toml", data, own_files(read.recipe, job), Git())
    (job / "recipe.py").write_text("raise RuntimeError('edited')")
    there = unpacked(package, tmp_path / "sent") / Path(at).parent / "recipe.py"
    assert there.read_bytes() == (TINY / "recipe.py").read_bytes()


@pytest.mark.parametrize("name", ["raykit.toml", "../raykit.toml", "../../team.toml"])
def test_a_shared_file_is_found_there_and_is_no_code_of_the_recipe(tmp_path: Path, name: str) -> None:
    text = (TINY / "plan.toml").read_text()
    claim = text[text.index("unit  ") : text.index("metric ")]
    plan = (
        text.replace(claim, f'from = "{name}"\n')
        .replace('success    = "it runs"\n', "")
        .replace("[claim]\n", "[claim]\n")
    ).encode()
    read = load_plan(plan, where="plan.toml", shared=lambda said: TEAM)
    package, at = working_dir(read, "plan.toml", plan, own_files(read.recipe, TINY), Git())
    there = unpacked(package, tmp_path / "sent") / at
    data, again = read_plan_file(there)
    assert data == plan and again.shared is not None and again.shared.data == TEAM
    assert own_files(again.recipe, recipe_folder(again.recipe, there)) == own_files(again.recipe, TINY)


def test_what_git_knew_travels_with_the_code(tmp_path: Path) -> None:
    data, read = read_plan_file(TINY / "plan.toml")
    git = Git(revision="4be1f0c", dirty=True, diff="?? recipe.py\n")
    package, _ = working_dir(read, "plan.toml", data, {}, git)
    at = unpacked(package, tmp_path / "sent") / archive.GIT
    assert Git(**json.loads(at.read_bytes())) == git


def test_too_much_to_send_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_WORK_BYTES", 100)
    data, read = read_plan_file(TINY / "plan.toml")
    with pytest.raises(PlanError, match="come to") as raised:
        working_dir(read, "plan.toml", data, {}, Git())
    assert raised.value.field == "recipe"
