"""What is searched is held against the recipe: by `raykit plan check`, and before a search registers anything.

# covers TUNE-01, TUNE-02, TUNE-14
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from called import Raykit, calls
from searchtoys import write_search

from raykit.errors import PlanError
from raykit.plan import load_plan
from raykit.train.params import check_params
from raykit.train.searched import check_settings


class Typed:
    @dataclass
    class Params:
        lr: float = 0.1
        width: int = 8
        norm: str = "rms"

        def __post_init__(self) -> None:
            if self.width % 2:
                raise ValueError(f"width is odd: {self.width}")


RECIPE: Any = Typed()


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    return calls(capsys)


def searched(folder: Path, space: str, **table: Any) -> Path:
    """The tiny search with another space."""
    path = write_search(folder, **table)
    text = path.read_text()
    assert "lr = { loguniform = [1e-3, 1e-1] }" in text
    path.write_text(text.replace("lr = { loguniform = [1e-3, 1e-1] }", space))
    return path


def findings(folder: Path, space: str, **table: Any) -> tuple[PlanError, ...]:
    plan = load_plan(searched(folder, space, **table).read_bytes(), where="plan.toml")
    plan = plan.model_copy(update={"run": plan.run.model_copy(update={"params": {}})})
    try:
        check_settings(RECIPE, plan)
    except PlanError as error:
        assert error.findings
        assert error.findings[0].message in error.message
        return error.findings
    return ()


@pytest.mark.parametrize("sampler", ["random", "optuna.tpe"])
@pytest.mark.parametrize(
    ("space", "field", "says", "takes"),
    [
        ("wdith = { integer = [2, 64] }", "search.space.wdith", "no parameter wdith", "lr, width, norm"),
        ('width = { choice = ["a", "b", "c", "d"] }', "search.space.width", "of another type", "int"),
        ("width = { choice = [2, 4, 6, 8.5] }", "search.space.width", "of another type", "int"),
        ("width = { uniform = [2, 64] }", "search.space.width", "of another type", "int"),
        ("norm = { integer = [1, 9] }", "search.space.norm", "of another type", "str"),
    ],
)
def test_what_the_recipe_does_not_take_is_named(
    tmp_path: Path, sampler: str, space: str, field: str, says: str, takes: str
) -> None:
    (found,) = findings(tmp_path, space, sampler=sampler)
    assert found.field == field
    assert says in found.message
    assert takes in (found.rule or "")


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    space = "wdith = { integer = [1, 9] }\nnorm = { uniform = [0, 1] }\nlr = { loguniform = [1e-4, 1] }"
    assert {each.field for each in findings(tmp_path, space)} == {"search.space.wdith", "search.space.norm"}


def test_a_setting_that_the_recipe_refuses_itself_is_told_with_its_row(tmp_path: Path) -> None:
    space = "width = { choice = [2, 3, 4, 6] }"
    (found,) = findings(tmp_path, space, sampler="grid")
    assert found.field == "search.space"
    assert found.value == {"width": 3}
    assert "width is odd: 3 (the setting of trial-002)" in found.message


@pytest.mark.parametrize("sampler", ["random", "optuna.tpe"])
def test_what_the_recipe_takes_passes(tmp_path: Path, sampler: str) -> None:
    space = 'width = { choice = [2, 4, 6] }\nlr = { loguniform = [1e-4, 1] }\nnorm = { choice = ["rms", "layer"] }'
    assert findings(tmp_path, space, sampler=sampler) == ()


def test_one_line_names_every_parameter() -> None:
    """A row's detail is one line."""
    with pytest.raises(PlanError) as refusal:
        check_params(RECIPE, {"wdith": 2, "lr": "fast"})
    said = "2 of the recipe's params do not fit: the recipe has no parameter wdith; lr is of another type"
    assert str(refusal.value) == said


@pytest.mark.parametrize("command", [("plan", "check"), ("search",)])
def test_nothing_is_registered(tmp_path: Path, raykit: Raykit, command: tuple[str, ...]) -> None:
    plan = searched(tmp_path / "job", "wdith = { integer = [1, 9] }")
    called = raykit(*command, str(plan))
    err = called.err
    assert called.code == 2, called.out + err
    assert "search.space.wdith" in err
    assert "the recipe has no parameter wdith" in err
    assert "one of width, dropout, lr, poison_at" in err
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("*search*"))


def test_plan_check_says_which_params_no_row_has(tmp_path: Path, raykit: Raykit) -> None:
    plan = write_search(tmp_path / "job", params="{ lr = 0.05, width = 8 }")
    said = "run.params.lr = 0.05 is replaced in every row: searched"
    assert said in " ".join(raykit("plan", "check", str(plan)).out.split())
    assert raykit("plan", "check", str(plan), "--json").json["search"]["replaced"] == said
    plan.write_text(plan.read_text().replace('mode       = "min"', 'mode = "min"\nfirst = [{ lr = 0.05 }]'))
    assert "is replaced" not in raykit("plan", "check", str(plan)).out
