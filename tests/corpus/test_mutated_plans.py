"""Hundreds of spoilt plans: each is refused clearly and at once, leaves no trace, and runs nothing.

covers PLAN-01, PLAN-21, S6, S10, S14
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from mutated_plans import PLANS, SHARED, Mutated, mutated_plans

from raykit.cli.main import main
from raykit.plan import load_plan

EVERY = {name: mutated_plans(name) for name in PLANS}
GROUPS = [
    (name, kind, list(found))
    for name, mutated in EVERY.items()
    for kind, found in groupby(mutated, key=lambda each: each.kind)
]
LEAST = 200
GUARD_S = 10.0
"""What hangs is found; how fast it is, is printed."""

RECIPE = """\
from pathlib import Path

Path(__file__).with_name("executed").write_text("and has no class that a plan could name")
"""

Snapshot = dict[str, bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as a team has it: recipes that leave a mark when they are executed, and the shared file."""
    path = tmp_path_factory.mktemp("team")
    furnish(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.delenv("RAYKIT_ROOT", raising=False)
        patch.delenv("RAYKIT_PERSON", raising=False)
        yield path


def furnish(path: Path) -> None:
    (path / "jobs/lm").mkdir(parents=True)
    (path / "jobs/lm/recipe.py").write_text(RECIPE)
    (path / "recipe.py").write_text(RECIPE)


def everything(path: Path) -> Snapshot:
    """Every file below `path`; what is as large as a spoilt plan can be, by its size."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {
        str(file.relative_to(path)): str(file.stat().st_size).encode()
        if file.stat().st_size > 1_000_000
        else file.read_bytes()
        for file in files
    }


def put(path: Path, spoilt: Mutated) -> Path:
    (path / "raykit.toml").write_bytes(spoilt.shared)
    plan = path / "plan.toml"
    plan.write_bytes(spoilt.data)
    return plan


# --- what they are made from --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_the_plans_that_they_are_made_from_are_good(name: str) -> None:
    assert load_plan(PLANS[name].read_bytes(), where=name, shared=lambda _: SHARED).name


def test_there_are_hundreds_of_them_each_another() -> None:
    every = [each for mutated in EVERY.values() for each in mutated]
    kinds = {name: {each.kind for each in mutated} for name, mutated in EVERY.items()}
    print(f"{len(every)} mutated plans: " + ", ".join(f"{name} {len(m)}" for name, m in EVERY.items()))
    assert len(every) >= LEAST
    for name, mutated in EVERY.items():
        contents = [(each.data, each.shared) for each in mutated]
        assert len(set(contents)) == len(contents), name
        assert (PLANS[name].read_bytes(), SHARED) not in contents
    assert set.union(*kinds.values()) == {
        "type", "unit", "number", "unknown", "enum", "removed", "twice", "bytes", "nested", "from",
    }  # fmt: skip
    assert [each.data for each in mutated_plans("search")] == [each.data for each in EVERY["search"]]


def test_a_recipe_leaves_its_mark_once_the_schema_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise its absence would say nothing."""
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = put(tmp_path, Mutated("good", "", PLANS["first"].read_bytes(), ""))
    assert main(["plan", "check", str(plan)]) == 2
    assert (tmp_path / "executed").exists()
    assert "DigitsVae" in capsys.readouterr().err


# --- each of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mutated"), [(g[1], g[2]) for g in GROUPS], ids=[f"{g[0]}-{g[1]}" for g in GROUPS]
)
def test_each_is_refused_by_name_and_leaves_no_trace(
    kind: str, mutated: list[Mutated], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worst_s, slowest = 0.0, ""
    wrong: list[str] = []
    for spoilt in mutated:
        plan = put(folder, spoilt)
        before = everything(folder)
        start = time.perf_counter()
        code = main(["plan", "check", str(plan)])
        took_s = time.perf_counter() - start
        if took_s > worst_s:
            worst_s, slowest = took_s, spoilt.what
        out, err = capsys.readouterr()
        wrong += [f"{spoilt.what}: {problem}" for problem in problems(spoilt, code, out, err)]
        if everything(folder) != before:
            wrong.append(f"{spoilt.what}: something was written")
    print(f"{kind}: {len(mutated)} plans, at worst {worst_s:.3f} s ({slowest})")
    assert not wrong, "\n".join(wrong)
    assert worst_s < GUARD_S


def problems(spoilt: Mutated, code: int, out: str, err: str) -> Iterator[str]:
    """What is not as a refusal should be."""
    if code not in (2, 3):
        yield f"exit {code}"
    if out:
        yield f"says {out[:80]!r} on stdout"
    if not err.endswith(f"exit {code}\n") or "plan.toml" not in err:
        yield f"does not end with its code, or does not name the file: {err[-80:]!r}"
    if "Traceback" in err or "Error:" in err:
        yield "shows a traceback"
    if spoilt.names not in err:
        yield f"does not name {spoilt.names}: {err[:400]}"
    if not err.replace("\n", "").isprintable():
        yield "prints what a terminal obeys"
    if len(err) > 20_000:
        yield f"is {len(err)} characters long"


def test_json_says_the_same_to_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _, _, mutated in GROUPS:
        plan = put(folder, mutated[-1])
        assert main(["plan", "check", str(plan), "--json"]) in (2, 3)
        out, err = capsys.readouterr()
        error = json.loads(err)["error"]
        assert out == ""
        assert error["kind"] == "plan"
        assert error["findings"], mutated[-1].what


def test_nothing_is_imported_before_the_schema_holds(tmp_path: Path) -> None:
    """One of every kind, in a process of its own: neither a recipe nor what it needs is loaded."""
    furnish(tmp_path)
    for n, (_, _, mutated) in enumerate(GROUPS):
        case = tmp_path / f"case-{n:02d}"
        case.mkdir()
        put(case, mutated[0])
    before = everything(tmp_path)
    script = """
import contextlib, io, json, pathlib, sys
from raykit.cli.main import main
codes = []
for case in sorted(pathlib.Path(sys.argv[1]).glob("case-*")):
    with contextlib.redirect_stderr(io.StringIO()):
        codes.append(main(["plan", "check", str(case / "plan.toml")]))
heavy = {"torch", "ray", "pyarrow", "sklearn", "scipy", "pandas", "s3fs", "recipe", "jobs"}
print(json.dumps([codes, sorted(heavy & {name.partition(".")[0] for name in sys.modules})]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    codes, loaded = json.loads(done.stdout)
    assert codes == [2] * len(GROUPS)
    assert loaded == []
    assert everything(tmp_path) == before
