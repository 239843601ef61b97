"""What is frozen of a recipe: its own code, and of a whole checkout no more than that.

covers CONTRACT-13 CONTRACT-20 DISP-02 DISP-14, I14
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import TINY, Launches, freeze_job, state_of, write_job

from raykit.errors import PlanError
from raykit.fleet import claim as claiming
from raykit.fleet.claim import claim, lock
from raykit.fleet.site import Site, code_files, git_facts, make_ready, site_of, stored_site, task_of
from raykit.records import ExperimentEntry, Locked
from raykit.store import layout, open_store
from raykit.store.log import Log
from raykit.store.people import People
from raykit.store.plans import read_locks
from raykit.train import frozen
from raykit.train.inputs import read_inputs
from raykit.train.owncode import code_differences, own_files, scope_of

SPEC = "jobs.digits.recipe:Tiny"
RECIPE = """
import json
import numpy
import losses
from common.blocks import Block, tools
from .near import NEAR
from .. import shelf

class Tiny:
    width = losses.WIDTH + NEAR + shelf.SHELF
    def model(self, params):
        import lazy
        return lazy.LAZY
    def optimizer(self, model, params): ...
    def dataset(self, source, params): ...
    def losses(self, model, batch): ...
"""
OWN = {
    "jobs/__init__.py": "",
    "jobs/digits/__init__.py": "",
    "jobs/digits/recipe.py": RECIPE,
    "jobs/digits/near.py": "NEAR = 1\n",
    "jobs/digits/table.csv": "1,2\n",
    "jobs/shelf.py": "SHELF = 2\n",
    "jobs/other/recipe.py": "import never_reached\n",
    "losses.py": "WIDTH = 3\n",
    "common/__init__.py": "from . import tools\n",
    "common/blocks.py": "from .deep.er import Block\nfrom common import tools\n",
    "common/tools.py": "",
    "common/deep/er.py": "class Block: ...\n",
    "lazy.py": "LAZY = 4\n",
}
NOT_OWN = {
    "docs/conf.py": "html = 1\n",
    "docs/words.txt": "one\n",
    "tests/test_all.py": "import losses\n",
    "common/unused.py": "",
    "never_reached.py": "",
    "json/data.json": "[]\n",
    "numpy/rows.csv": "1\n",
    "setup.cfg": "[x]\n",
    "plan.toml": f'recipe = "{SPEC}"\n',
}


def checkout(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def as_bytes(files: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


# --- what is taken ------------------------------------------------------------------------------------------


def test_of_a_checkout_the_package_is_taken_and_what_it_imports(tmp_path: Path) -> None:
    """Also what it imports when it is called; not what lies beside that, and not folders of that name without code."""
    found = own_files(SPEC, checkout(tmp_path, OWN | NOT_OWN))
    assert found == as_bytes(OWN)
    assert scope_of(SPEC, found) == ("common", "jobs", "lazy.py", "losses.py")


def test_the_frozen_copy_gives_the_same_copy_and_imports(tmp_path: Path) -> None:
    first = own_files(SPEC, checkout(tmp_path / "clone", OWN | NOT_OWN))
    (tmp_path / "copy").mkdir()
    frozen.unpack(first, tmp_path / "copy")
    assert frozen.pack(own_files(SPEC, tmp_path / "copy")) == frozen.pack(first)
    recipe = sys.modules["jobs.digits.recipe"]
    assert Path(recipe.__file__ or "").is_relative_to(tmp_path / "copy")
    assert recipe.Tiny.width == 6
    assert recipe.Tiny().model(None) == 4


def test_a_module_beside_the_plan_stands_for_its_folder(tmp_path: Path) -> None:
    """covers: the digest of code that is beside its plan is what it always was"""
    checkout(tmp_path, OWN | NOT_OWN)
    assert own_files("losses:Tiny", tmp_path) == frozen.folder_files(tmp_path)
    digits = Path(__file__).parents[2] / "jobs" / "digits"
    assert own_files("recipe:DigitsVae", digits) == {"recipe.py": (digits / "recipe.py").read_bytes()}


def test_a_module_whose_name_is_worked_out_is_taken_when_it_was_loaded(tmp_path: Path) -> None:
    text = "import importlib\nlosses = importlib.import_module('lo' + 'sses')\n" + RECIPE.replace(
        "import losses\n", ""
    )
    found = own_files(SPEC, checkout(tmp_path, OWN | NOT_OWN | {"jobs/digits/recipe.py": text}))
    assert found["losses.py"] == b"WIDTH = 3\n"
    assert "docs/conf.py" not in found


def test_an_odd_thing_elsewhere_in_the_checkout_is_nobodys_business(tmp_path: Path) -> None:
    checkout(tmp_path, OWN)
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "out.py").symlink_to("/etc/hostname")
    assert own_files(SPEC, tmp_path) == as_bytes(OWN)


def test_an_import_that_leads_out_of_the_checkout_is_refused(tmp_path: Path) -> None:
    checkout(tmp_path / "clone", OWN)
    checkout(tmp_path, {"losses.py": "WIDTH = 3\n"})
    (tmp_path / "clone" / "losses.py").unlink()
    (tmp_path / "clone" / "losses.py").symlink_to(tmp_path / "losses.py")
    with pytest.raises(PlanError, match=r"losses\.py is a link out of the recipe's folder"):
        own_files(SPEC, tmp_path / "clone")


def test_a_package_that_is_a_link_elsewhere_is_refused(tmp_path: Path) -> None:
    checkout(tmp_path / "elsewhere", OWN)
    clone = checkout(tmp_path / "clone", {k: v for k, v in OWN.items() if not k.startswith("jobs/")})
    (clone / "jobs").symlink_to(tmp_path / "elsewhere" / "jobs")
    with pytest.raises(PlanError, match="is a link"):
        own_files(SPEC, clone)


def test_too_much_code_is_refused_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path, OWN | {"lazy.py": "#" * 2000})
    monkeypatch.setattr(frozen, "MAX_CODE_BYTES", 2000)
    with pytest.raises(PlanError, match="holds more than"):
        own_files(SPEC, tmp_path)


def test_an_installed_package_is_not_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path / "installed", OWN)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    (tmp_path / "work").mkdir()
    assert own_files(SPEC, tmp_path / "work") == {}


# --- what a copy of a whole checkout means today ------------------------------------------------------------


def changes(was: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    found = code_differences(SPEC, as_bytes(was), as_bytes(now))
    return {each.what.removeprefix("code file "): each.allows for each in found}


def test_what_is_not_frozen_any_more_and_was_not_imported_makes_no_difference() -> None:
    assert changes(OWN | NOT_OWN, OWN) == {}


@pytest.mark.parametrize("name", ["losses.py", "common/deep/er.py", "lazy.py", "jobs/other/recipe.py"])
def test_what_was_the_recipes_own_code_is_missed(name: str) -> None:
    assert changes(OWN | NOT_OWN, {k: v for k, v in OWN.items() if k != name}) == {name: "inexact"}
    assert changes(OWN | NOT_OWN, OWN | {name: "other = 1\n"}) == {name: "inexact"}


def test_a_module_more_is_a_difference() -> None:
    assert changes(OWN, OWN | {"jobs/types.py": ""}) == {"jobs/types.py": "inexact"}


@pytest.mark.parametrize(
    "how", ["import importlib", "from pkgutil import walk_packages", "x = __import__('a')"]
)
def test_where_imports_cannot_be_read_every_file_counts(how: str) -> None:
    """In doubt the class is lowered, and each file is named."""
    edited = {"common/tools.py": how + "\n"}
    found = changes(OWN | edited | {"plugins/one.py": "", "docs/words.txt": "a"}, OWN | edited)
    assert found == {"plugins/one.py": "inexact", "docs/words.txt": "inexact"}


# --- in a store ---------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def tiny_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose plan, in its root, names a recipe in a package; returns the plan's path."""
    plan = write_job(folder, {"recipe": '"jobs.tiny.recipe:Tiny"'})
    (folder / "recipe.py").unlink()
    checkout(folder, {"jobs/__init__.py": "", "jobs/tiny/__init__.py": "", "docs/words.txt": "one\n"})
    shutil.copy(TINY / "recipe.py", folder / "jobs" / "tiny" / "recipe.py")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    monkeypatch.chdir(folder)
    return plan


def locked_again(site: Site) -> list[Locked]:
    ready = make_ready(site)
    lock(site, ready, site.run_log("launch"))
    return read_locks(site.store, site.name)


def test_a_run_of_a_package_is_frozen_read_and_frozen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tiny_checkout(tmp_path / "clone", monkeypatch)
    task = freeze_job(tmp_path / "store", plan)
    names = ["jobs/__init__.py", "jobs/tiny/__init__.py", "jobs/tiny/recipe.py"]
    assert sorted(frozen.read_code(open_store(task.root), "tiny", task.code)) == names
    (tmp_path / "clone" / "docs" / "words.txt").write_text("two\n")
    assert freeze_job(tmp_path / "store", plan).plan == task.plan
    assert len(read_locks(open_store(task.root), "tiny")) == 1, "docs are not of the recipe, to git neither"
    shutil.rmtree(tmp_path / "clone" / "jobs")
    (tmp_path / "rank").mkdir()
    inputs = read_inputs(open_store(task.root), task, tmp_path / "rank")
    assert type(inputs.recipe).__module__ == "jobs.tiny.recipe"
    with stored_site("tiny", task.root) as site:
        again = task_of(site, make_ready(site))
    assert replace(again, launch=task.launch) == task


def test_code_that_was_frozen_by_another_rule_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run from the store is the run that was locked, with every file that its copy has."""
    plan = tiny_checkout(tmp_path / "clone", monkeypatch)
    site = site_of(plan, str(tmp_path / "store"))
    whole = frozen.folder_files(tmp_path / "clone")
    assert "docs/words.txt" in whole
    ready = make_ready(site)
    old = frozen.pack(whole)
    digest = frozen.write_code(site.store, "tiny", old)
    sealed = ready.lock.model_copy(update={"code": digest})
    lock(site, replace(ready, lock=sealed, code=old, code_sha256=digest), site.run_log("launch"))
    with stored_site("tiny", str(tmp_path / "store")) as stored:
        assert code_files(stored) == whole
        assert task_of(stored, make_ready(stored)).code == digest
        assert len(locked_again(stored)) == 1


def test_a_start_from_the_store_keeps_what_git_knew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """covers LEDGER-01: nothing else has changed, so nothing is locked again"""
    plan = tiny_checkout(tmp_path / "clone", monkeypatch)
    checkout(tmp_path / "clone", {"jobs/tiny/new.py": ""})
    task = freeze_job(tmp_path / "store", plan)
    with stored_site("tiny", task.root) as site:
        (locked,) = locked_again(site)
    record = frozen.read_environment(site.store, "tiny", locked.environment)
    assert record.git_revision == git(tmp_path / "clone", "rev-parse", "HEAD")
    assert (record.git_dirty, record.git_diff) == (True, "?? jobs/tiny/new.py\n")


def test_what_git_knew_is_found_behind_a_record_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version looked for git in the copy, and wrote that there was none."""
    task = freeze_job(tmp_path / "store", tiny_checkout(tmp_path / "clone", monkeypatch))
    store = open_store(task.root)
    (locked,) = read_locks(store, "tiny")
    known = frozen.read_environment(store, "tiny", locked.environment)
    forgot = known.model_copy(update={"git_revision": None, "git_dirty": None, "git_diff": None})
    log_again(tmp_path, locked, frozen.write_environment(store, "tiny", forgot))
    with stored_site("tiny", task.root) as site:
        found = git_facts(site, make_ready(site))
    assert found.revision == known.git_revision


def log_again(tmp_path: Path, locked: Locked, environment: str) -> None:
    log = Log(open_store(str(tmp_path / "store")), layout.experiment_log("tiny"), ExperimentEntry, by="test")
    log.append(lambda entries: [locked.model_copy(update={"environment": environment})], at=1.0)


def test_a_plan_that_git_does_not_track_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tiny_checkout(tmp_path / "clone", monkeypatch)
    other = plan.with_name("other.toml")
    shutil.copy(plan, other)
    site = site_of(other, str(tmp_path / "store"))
    assert git_facts(site, make_ready(site)).diff == "?? other.toml\n"


LAZY = """

class Variant(Tiny):
    def dataset(self, source, params):
        import rows
        return rows.made(super(), source, params)
"""


def test_a_package_trains_and_resumes_from_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: Nursery
) -> None:
    """With a module of the root that is imported only when the recipe is called. The checkout is gone by then."""
    plan = tiny_checkout(tmp_path / "clone", monkeypatch)
    plan.write_text(plan.read_text().replace("recipe:Tiny", "recipe:Variant"))
    recipe = tmp_path / "clone" / "jobs" / "tiny" / "recipe.py"
    recipe.write_text(recipe.read_text() + LAZY)
    checkout(tmp_path / "clone", {"rows.py": "def made(tiny, *given):\n    return tiny.dataset(*given)\n"})
    task = freeze_job(tmp_path / "store", plan)
    shutil.rmtree(tmp_path / "clone" / "jobs")
    (tmp_path / "clone" / "rows.py").unlink()
    run = Launches(nursery, task)
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    monkeypatch.setattr(
        claiming, "alive", lambda place: False
    )  # this process took it, and is dead to a second launch
    with stored_site("tiny", task.root) as site:
        again = claim(site, site.run_log("launch"), People(site.store, "tiny"))
    assert again.start.receipt is not None
    assert (again.start.exactness, again.start.receipt.differences) == ("exact", ())
    assert len(read_locks(site.store, "tiny")) == 1
    assert [rank.wait()[0] for rank in run.ranks(again.task)] == [0]
    assert state_of(task).completed
