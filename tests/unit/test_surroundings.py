"""What a recipe imports from beside itself is frozen, or bound, or refused: and no worker looks where it was started.

covers FAULT-A19, CONTRACT-13 CONTRACT-20, I14
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job

from raykit.cli.main import main
from raykit.errors import ExactnessError, GateError, PlanError
from raykit.fleet import claim as claiming
from raykit.fleet.claim import claim
from raykit.fleet.site import make_ready, site_of, stored_site
from raykit.records import CODE_OF
from raykit.store import open_store
from raykit.store.people import People
from raykit.train import frozen, surroundings
from raykit.train.facts import of_facts
from raykit.train.find_recipe import load_recipe, loaded_for
from raykit.train.owncode import own_files
from raykit.train.surroundings import code_outside, unbound, worker_path

PASSED_OVER = ["build", "dist", "store", "node_modules", "runs"]
"""Folders whose name says that they are no code, and one that is a store by what it holds."""
BARE = """
class Bare:
    def model(self, params): ...
    def optimizer(self, model, params): ...
    def dataset(self, source, params): ...
    def losses(self, model, batch): ...
"""


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules and path of this process."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path
    surroundings._stays.clear()


def write(folder: Path, **files: str) -> Path:
    """Modules by name, a double underscore for the folder: `build__rule="WIDTH = 1"`, `mylib__init=""`."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/').replace('/init', '/__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# --- what is frozen -----------------------------------------------------------------------------------------

WAYS = {
    "at the top": "from {}.rule import WIDTH\n",
    "when it is called": "def later():\n    import {}.rule\n",
    "by importlib": "import importlib\ndef later():\n    importlib.import_module('{}.rule')\n",
}


@pytest.mark.parametrize("spec", ["bare:Bare", "mine.bare:Bare"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PASSED_OVER)
def test_what_is_imported_is_frozen_whatever_its_folder_is_called(
    name: str, way: str, spec: str, tmp_path: Path
) -> None:
    files = {f"{name}__rule": "import helper\nWIDTH = 1\n", f"{name}__other": "", "helper": ""}
    recipe = spec.partition(":")[0].replace(".", "__")
    write(tmp_path, **{recipe: WAYS[way].format(name) + BARE}, **files)
    (tmp_path / "runs" / "experiments").mkdir(parents=True)
    found = own_files(spec, tmp_path)
    assert {name for name in found if "__init__" not in name} == {
        f"{recipe.replace('__', '/')}.py",
        f"{name}/rule.py",
        "helper.py",
    }
    (tmp_path / "copy").mkdir()
    frozen.unpack(found, tmp_path / "copy")
    assert own_files(spec, tmp_path / "copy") == found, "the copy is a copy of itself"


def test_what_a_plugin_of_the_folder_imports_is_frozen_too(tmp_path: Path) -> None:
    """Found by its name at run time, and imported by nobody's text."""
    write(tmp_path, bare=BARE, plugins__one="import build.rule\n", build__rule="")
    assert "build/rule.py" in own_files("bare:Bare", tmp_path)


def test_a_hidden_folder_that_the_recipe_puts_on_the_path_is_frozen(tmp_path: Path) -> None:
    lines = (
        "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent / '.lib'))\nimport hid\n"
    )
    write(tmp_path, bare=lines + BARE)
    (tmp_path / ".lib").mkdir()
    (tmp_path / ".lib" / "hid.py").write_text("X = 1\n")
    assert own_files("bare:Bare", tmp_path).keys() == {"bare.py", ".lib/hid.py"}


def test_nothing_else_of_such_folders_is_taken(tmp_path: Path) -> None:
    write(tmp_path, bare=BARE, **{f"{name}__rule": "" for name in PASSED_OVER if name != "runs"})
    assert own_files("bare:Bare", tmp_path).keys() == {"bare.py"}


@pytest.mark.parametrize("given", ["'\\0'", "'a b'", "''", "name", "1", "'.rule', __package__"])
def test_a_name_that_nobody_can_read_asks_for_nothing(given: str, tmp_path: Path) -> None:
    write(tmp_path, bare=f"import importlib\ndef later(name):\n    importlib.import_module({given})\n" + BARE)
    assert own_files("bare:Bare", tmp_path).keys() == {"bare.py"}


# --- code outside -------------------------------------------------------------------------------------------


def outside_of(folder: Path) -> dict[str, str]:
    load_recipe("bare:Bare", folder)
    return code_outside(folder, own_files("bare:Bare", folder), loaded_for(folder))


def library(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = "X = 1\n") -> Path:
    """A package of the user's own, where PYTHONPATH says."""
    write(folder, mylib__init=text, mylib__deep__more="")
    (folder / "mylib" / "notes.txt").write_text("no code\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.parametrize("line", ["import mylib\n", "def later():\n    from mylib.deep import more\n"])
def test_code_outside_is_named_and_bound(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = library(tmp_path / "lib", monkeypatch)
    job = write(tmp_path / "job", bare="import json, torch, numpy\n" + line + BARE)
    first = outside_of(job)
    assert first.keys() == {"code of mylib"}
    (lib / "mylib" / "notes.txt").write_text("still none\n")
    (lib / "mylib" / "__pycache__").mkdir(exist_ok=True)
    assert outside_of(job) == first
    (lib / "mylib" / "deep" / "more.py").write_text("Y = 2\n")
    (difference,) = of_facts(first, outside_of(job))
    assert (difference.what, difference.allows) == ("code of mylib", "inexact")


def test_what_is_installed_or_the_recipes_own_is_no_code_outside(tmp_path: Path) -> None:
    lines = "import json, torch, raykit, helper\nfrom raykit.train import recipe\n"
    lines += "def later():\n    import nobody_has_this\n    from ..far import away\n"
    job = write(tmp_path, bare=lines + BARE, helper="")
    assert outside_of(job) == {}


def test_code_outside_that_is_imported_later_by_a_name_worked_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path / "lib", monkeypatch)
    text = "import importlib\n" + BARE.replace(
        "losses(self, model, batch): ...", "losses(self, model, batch):"
    )
    job = write(tmp_path / "job", bare=text + "        importlib.import_module('my' + 'lib')\n")
    recipe = load_recipe("bare:Bare", job)
    facts = code_outside(job, own_files("bare:Bare", job), loaded_for(job))
    assert (facts, unbound(job, loaded_for(job), facts)) == ({}, [])
    recipe.losses(None, None)  # type: ignore[arg-type]
    assert unbound(job, loaded_for(job), facts) == ["mylib"]
    assert unbound(job, loaded_for(job), {f"{CODE_OF}mylib": "0"}) == []


def test_code_of_the_working_folder_is_refused_before_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = write(tmp_path / "work", mylib="X = 1\n")
    plan = write_job(work / "job", variant="import mylib\n\nclass Variant(Tiny): ...\n")
    monkeypatch.chdir(work)
    monkeypatch.setenv("PYTHONPATH", str(work))
    monkeypatch.syspath_prepend("")
    with pytest.raises(PlanError, match=r"imports mylib from .*mylib\.py, where no worker looks") as refusal:
        make_ready(site_of(plan, str(tmp_path / "store")))
    assert refusal.value.field == "recipe"
    assert refusal.value.remedy == "put mylib beside the recipe, or install it: pip install -e"


def test_a_plan_check_names_code_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library(tmp_path / "lib", monkeypatch)
    plan = write_job(tmp_path / "job", variant="import mylib\n\nclass Variant(Tiny): ...\n")
    says = "imports  mylib: not kept, and a resume over other code there is inexact"
    for path, said in ((plan, True), (write_job(tmp_path / "other"), False)):
        assert main(["plan", "check", str(path), "--root", str(tmp_path / "store")]) == 0
        assert (says in capsys.readouterr().out) is said


# --- where a worker looks -----------------------------------------------------------------------------------


def test_a_worker_looks_in_what_is_installed_and_where_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, linked, script = tmp_path / "told", tmp_path / "linked", tmp_path / "script"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{told}{os.pathsep}{tmp_path}")
    monkeypatch.setattr(surroundings, "_linked", lambda: frozenset({str(linked)}))
    installed = [path for path in sys.path if "site-packages" in path]
    monkeypatch.setattr(sys, "path", ["", str(script), str(tmp_path), str(told), str(linked), *installed])
    assert worker_path() == [*installed, str(told), str(linked)]


def test_an_editable_install_of_the_working_folder_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(surroundings, "_linked", lambda: frozenset({str(tmp_path)}))
    monkeypatch.setattr(sys, "path", ["", str(tmp_path)])
    assert worker_path() == [str(tmp_path)]


def test_in_a_worker_the_copy_comes_before_all_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for what is imported only when the recipe is called."""
    library(tmp_path / "lib", monkeypatch)
    lazily = BARE.replace(
        "losses(self, model, batch): ...", "losses(self, model, batch): import mylib; return mylib.X"
    )
    job = write(tmp_path / "job", bare=lazily, mylib="X = 2\n")
    surroundings.stay_inside()
    assert load_recipe("bare:Bare", job).losses(None, None) == 2  # type: ignore[arg-type]


def test_a_plain_rank_does_not_import_from_where_it_was_started(tmp_path: Path) -> None:
    write(tmp_path, here_only="X = 1\n")
    program = (
        "import sys\nfrom raykit.train import plain\n"
        "plain.Task = type('Task', (), {'of': staticmethod(lambda it: it)})\n"
        "plain.work = lambda *given: __import__('here_only')\n"
        "plain.main([sys.argv[1]])\n"
    )
    (tmp_path / "task.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "task.json")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'here_only'" in done.stderr


# --- killed, changed, gone on with --------------------------------------------------------------------------

LAZY = """
import importlib

class Variant(Tiny):
    def dataset(self, source, params):
        return importlib.import_module("build.rows").made(super(), source, params)
"""
BOUND = """
import mylib

class Variant(Tiny):
    def optimizer(self, model, params):
        return super().optimizer(model, replace(params, lr=mylib.LR))
"""
KILL = {"put": '"event":"commit"', "when": "after", "nth": 2}


def test_code_in_a_folder_called_build_that_changes_is_never_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: Nursery
) -> None:
    """What runs is the copy; the folder as it is now is another run, and said to be one."""
    plan = write_job(tmp_path / "job", variant=LAZY)
    write(tmp_path / "job", build__rows="def made(tiny, *given):\n    return tiny.dataset(*given)\n")
    task = freeze_job(tmp_path / "store", plan)
    assert "build/rows.py" in frozen.read_code(open_store(task.root), "tiny", task.code)
    run = Launches(nursery, task)
    run.killed(KILL)
    write(tmp_path / "job", build__rows="raise SystemError('the checkout')\n")
    monkeypatch.setattr(claiming, "alive", lambda place: False)
    with stored_site("tiny", task.root) as site:
        again = claim(site, site.run_log("launch"), People(site.store, "tiny"))
    assert (again.start.exactness, again.start.receipt and again.start.receipt.differences) == ("exact", ())
    write(tmp_path / "job", build__rows="def made(tiny, *given):\n    return (tiny.dataset(*given))or 0\n")
    site = site_of(plan, task.root)
    with pytest.raises(ExactnessError, match=r"code file build/rows\.py: .* leaves inexact"):
        claim(site, site.run_log("launch"), People(site.store, "tiny"))
    assert [rank.wait()[0] for rank in run.ranks(again.task)] == [0]
    assert state_of(task).completed


def test_code_outside_that_changes_is_never_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: Nursery
) -> None:
    """For the launch, which refuses before it starts anything, and for a worker that finds it for itself."""
    lib = library(tmp_path / "lib", monkeypatch, "LR = 0.02\n")
    plan = write_job(tmp_path / "job", variant=BOUND)
    task = freeze_job(tmp_path / "store", plan)
    run = Launches(nursery, task, env={"PYTHONPATH": str(lib)}, hooks={"look_in": str(lib)})
    run.killed(KILL)
    first = state_of(task).attempts[-1].facts
    monkeypatch.setattr(claiming, "alive", lambda place: False)
    with stored_site("tiny", task.root) as site:
        again = claim(site, site.run_log("launch"), People(site.store, "tiny"))
    assert (again.start.exactness, again.start.receipt and again.start.receipt.differences) == ("exact", ())
    write(lib, mylib__init="LR = 0.03\n")
    says = r"code of mylib: \w+ -> \w+ leaves inexact"
    with (
        stored_site("tiny", task.root) as site,
        pytest.raises(ExactnessError, match=says),
    ):
        claim(site, site.run_log("launch"), People(site.store, "tiny"))
    ((code, out),) = [rank.wait() for rank in run.ranks(again.task)]
    assert code == ExactnessError.exit_code
    assert "code of mylib" in out and first["code of mylib"] in out


WORKED_OUT = """
import importlib

class Variant(Tiny):
    def losses(self, model, batch):
        return importlib.import_module("bui" + "ld.rows").made(super().losses(model, batch))
"""


def test_a_module_of_such_a_folder_that_nothing_spells_out_is_refused_once(
    tmp_path: Path, nursery: Nursery
) -> None:
    """It is not in the copy, and no worker has it from the checkout; another attempt would not have it either."""
    plan = write_job(tmp_path / "job", variant=WORKED_OUT)
    write(tmp_path / "job", build__rows="def made(losses):\n    return losses\n")
    run = Launches(nursery, freeze_job(tmp_path / "store", plan))
    ((code, out),) = run.run()
    assert code == GateError.exit_code, out
    says = "the recipe imports build when it is called, which is neither in its frozen copy nor installed"
    assert says in out
    state = state_of(run.task)
    (end,) = state.ends.values()
    assert (end.reason, says in (end.detail or ""), state.commits) == ("failed", True, ())


LATE = """
import importlib

class Variant(Tiny):
    def losses(self, model, batch):
        if self.seen > 7:
            importlib.import_module("my" + "lib")
        return super().losses(model, batch)
"""


def test_code_outside_that_only_training_imports_lowers_the_checkpoints_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: Nursery
) -> None:
    """Nothing binds it, so no resume from there may be called exact; it is named in the rank's log."""
    lib = library(tmp_path / "lib", monkeypatch)
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", variant=LATE))
    run = Launches(nursery, task, env={"PYTHONPATH": str(lib)}, hooks={"look_in": str(lib)})
    ((code, out),) = run.run()
    assert code == 0, out
    kept = {commit.update: commit.exactness for commit in state_of(task).commits}
    assert kept == {0: "exact", 5: "exact", 10: "inexact", 15: "inexact", 20: "inexact"}
