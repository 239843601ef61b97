"""The user's side: how a recipe is found, how its params are typed, and what a loss term has to say.

covers CONTRACT-02 HIST-05 HIST-06, I14
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from raykit.errors import GateError, PlanError
from raykit.plan.tables import FieldBounds
from raykit.train.find_recipe import load_recipe, recipe_folder
from raykit.train.params import check_fields, check_params
from raykit.train.recipe import Classes, Image, LossTerm, Text

BARE = """
class Bare:
    def model(self, params): ...
    def optimizer(self, model, params): ...
    def dataset(self, source, params): ...
    def losses(self, model, batch): ...
"""


@pytest.fixture(autouse=True)
def modules_and_path() -> Iterator[None]:
    """What recipes bring into this process goes with the test."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path


def folder(path: Path, **files: str) -> Path:
    """A folder with these Python files."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / f"{name}.py").write_text(text)
    return path


# --- finding a recipe ---------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "no class named": ("bare", {"bare": BARE}, "'bare' does not name a recipe"),
    "no such module": ("other:Bare", {"bare": BARE}, "there is no module other in "),
    "no such class": ("bare:Other", {"bare": BARE}, "bare has no class Other"),
    "not a class": ("bare:x", {"bare": "x = 3\n"}, "bare has no class x"),
    "needs arguments": (
        "bare:Bare",
        {"bare": BARE + "    def __init__(self, size): ...\n"},
        "Bare cannot be made without arguments: ",
    ),
    "lacks methods": (
        "bare:Bare",
        {"bare": "class Bare:\n    def model(self, params): ...\n"},
        "Bare lacks optimizer, dataset, losses",
    ),
    "does not parse": ("bare:Bare", {"bare": "class Bare(:\n"}, "the recipe bare cannot be imported: "),
    "needs a module that is not there": (
        "bare:Bare",
        {"bare": "import not_there_at_all\n"},
        "the recipe bare cannot be imported: No module named 'not_there_at_all'",
    ),
    "needs a name that is not there": (
        "bare:Bare",
        {"bare": "from helper import other\n", "helper": "one = 1\n"},
        "the recipe bare cannot be imported: cannot import name 'other'",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_recipe_that_cannot_be_had_is_refused_by_name(why: str, tmp_path: Path) -> None:
    spec, files, says = REFUSED[why]
    with pytest.raises(PlanError) as refusal:
        load_recipe(spec, folder(tmp_path, **files))
    assert refusal.value.message.startswith(says)
    assert refusal.value.field == "recipe"


def test_a_class_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as refusal:
        load_recipe("bare:Bear", folder(tmp_path, bare=BARE))
    assert refusal.value.rule == "one of Bare"


def test_a_recipe_may_lie_in_a_package(tmp_path: Path) -> None:
    package = folder(tmp_path / "jobs", __init__="", deep=BARE)
    assert type(load_recipe("jobs.deep:Bare", package.parent)).__name__ == "Bare"


def test_recipes_of_two_folders_share_nothing(tmp_path: Path) -> None:
    """Neither the module of the same name nor the helper that it imports is taken from the other folder."""
    text = "import helper\n" + BARE + "    size = helper.SIZE\n"
    first = folder(tmp_path / "first", bare=text, helper="SIZE = 1\n")
    second = folder(tmp_path / "second", bare=text, helper="SIZE = 2\n")
    sizes = [load_recipe("bare:Bare", found).size for found in (first, second, first)]  # type: ignore[attr-defined]
    assert sizes == [1, 2, 1]


def test_a_recipe_may_import_its_helpers_when_it_is_called(tmp_path: Path) -> None:
    text = BARE.replace(
        "losses(self, model, batch): ...", "losses(self, model, batch): import helper; return helper.X"
    )
    first = folder(tmp_path / "first", bare=text, helper="X = 1\n")
    second = folder(tmp_path / "second", bare=text, helper="X = 2\n")
    before = list(sys.path)
    for found, expected in ((first, 1), (second, 2)):
        assert load_recipe("bare:Bare", found).losses(None, None) == expected  # type: ignore[arg-type]
    assert sys.path == [*before, str(second)], "the folder of the recipe in use, last, and no other"


def test_a_package_of_that_name_from_elsewhere_is_not_mistaken_for_the_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have one before: its modules are then not what a frozen copy holds."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    folder(elsewhere / "shared_jobs", __init__="", deep=BARE + "    size = 1\n")
    folder(here / "shared_jobs", __init__="", deep=BARE + "    size = 2\n")
    monkeypatch.syspath_prepend(elsewhere)
    __import__("shared_jobs")
    assert load_recipe("shared_jobs.deep:Bare", here).size == 2  # type: ignore[attr-defined]


def test_what_was_there_before_a_recipe_stays(tmp_path: Path) -> None:
    """A folder that holds everything, such as a checkout: only what the recipe brought goes with it."""
    first = folder(tmp_path / "first", bare="import already\n" + BARE, already="", other="")
    sys.path.insert(0, str(first))
    already = __import__("already")
    load_recipe("bare:Bare", first)
    load_recipe("bare:Bare", folder(tmp_path / "second", bare=BARE))
    assert sys.modules["already"] is already
    assert str(first) in sys.path, "it was there on its own account"


@pytest.mark.parametrize("beside", ["recipe.py", "recipe/__init__.py"])
def test_a_recipe_is_looked_for_beside_its_plan_first(
    beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = folder(tmp_path / "elsewhere")
    monkeypatch.chdir(elsewhere)
    plan = tmp_path / "job" / "plan.toml"
    plan.parent.mkdir()
    assert recipe_folder("recipe:Any", plan) == elsewhere
    (plan.parent / beside).parent.mkdir(exist_ok=True)
    (plan.parent / beside).touch()
    assert recipe_folder("recipe:Any", plan) == plan.parent
    assert recipe_folder("recipe.deep:Any", plan) == plan.parent


# --- params -------------------------------------------------------------------------------------------------

TYPED = (
    "from __future__ import annotations\n"
    "from dataclasses import dataclass, field\n"
    "from typing import Any, Literal, Sequence\n"
    + BARE
    + """
    @dataclass
    class Params:
        width: int
        lr: float = 0.1
        clip: float | None = None
        kind: Literal["a", "b", 1] = "a"
        sizes: list[int] = field(default_factory=list)
        betas: tuple[float, float] = (0.9, 0.999)
        shape: tuple[int, ...] = ()
        names: Sequence[str] = ()
        free: Any = None
        table: dict = field(default_factory=dict)
        bare: tuple = ()
        on: bool = False

        def __post_init__(self):
            if self.width > 1000:
                raise ValueError("width is more than 1000")
"""
)


@pytest.fixture
def typed(tmp_path: Path) -> Any:
    return load_recipe("typed:Bare", folder(tmp_path, typed=TYPED))


FITS: dict[str, tuple[Any, Any]] = {
    "width": (3, 3),
    "lr": (1, 1.0),
    "clip": (2, 2.0),
    "kind": (1, 1),
    "sizes": ([1, 2], [1, 2]),
    "betas": ([1, 0.5], (1.0, 0.5)),
    "shape": ([1, 2, 3], (1, 2, 3)),
    "names": (["x"], ["x"]),
    "free": ([1, "x", {}], [1, "x", {}]),
    "table": ({"a": 1}, {"a": 1}),
    "bare": ([1, "x"], (1, "x")),
    "on": (True, True),
}


@pytest.mark.parametrize("name", FITS)
def test_a_value_of_its_type_is_taken(name: str, typed: Any) -> None:
    given, expected = FITS[name]
    params = check_params(typed, {"width": 1, name: given})
    found = getattr(params, name)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert list(map(type, found)) == list(map(type, expected))


UNFIT: dict[str, tuple[str, Any, str]] = {
    "text for a number": ("width", "3", "int"),
    "a fraction for a whole number": ("width", 3.0, "int"),
    "yes for a number": ("width", True, "int"),
    "yes for a fraction": ("lr", True, "float"),
    "text for one of two": ("clip", "none", "float | None"),
    "another word": ("kind", "c", "Literal['a', 'b', 1]"),
    "yes for a one": ("kind", True, "Literal['a', 'b', 1]"),
    "text in a list of numbers": ("sizes", [1, "2"], "list[int]"),
    "a number for a list": ("sizes", 1, "list[int]"),
    "three for two": ("betas", [0.9, 0.99, 0.999], "tuple[float, float]"),
    "text in a tuple": ("shape", [1, "2"], "tuple[int, ...]"),
    "a list for a table": ("table", [1], "dict"),
    "a number for yes": ("on", 1, "bool"),
}


@pytest.mark.parametrize("why", UNFIT)
def test_a_value_of_another_type_is_refused_by_name(why: str, typed: Any) -> None:
    name, value, rule = UNFIT[why]
    (finding,) = findings(typed, {"width": 1, name: value})
    assert (finding.field, finding.value) == (f"run.params.{name}", value)
    assert rule in (finding.rule or "")


def findings(recipe: Any, params: Mapping[str, Any]) -> tuple[PlanError, ...]:
    with pytest.raises(PlanError) as refusal:
        check_params(recipe, params)
    return refusal.value.findings


def test_all_that_does_not_fit_is_told_at_once(typed: Any) -> None:
    found = findings(typed, {"lr": "fast", "depth": 3, "on": 1})
    assert [finding.field for finding in found] == [
        "run.params.depth",
        "run.params.width",
        "run.params.lr",
        "run.params.on",
    ]
    assert found[0].message == "the recipe has no parameter depth"
    assert found[1].message == "the recipe needs width"


def test_a_recipe_may_refuse_values_itself(typed: Any) -> None:
    with pytest.raises(PlanError, match="the recipe refuses its params: width is more than 1000") as refusal:
        check_params(typed, {"width": 1001})
    assert refusal.value.field == "run.params"


def test_without_declared_params_they_are_a_dict(tmp_path: Path) -> None:
    assert check_params(load_recipe("bare:Bare", folder(tmp_path, bare=BARE)), {"a": 1}) == {"a": 1}


def test_params_that_are_no_dataclass_are_refused(tmp_path: Path) -> None:
    recipe = load_recipe("bare:Bare", folder(tmp_path, bare=BARE + "    class Params: ...\n"))
    with pytest.raises(PlanError, match="Params of the recipe is not a dataclass"):
        check_params(recipe, {})


# --- loss terms ---------------------------------------------------------------------------------------------

VALUE = torch.tensor(0.5)
TARGET = torch.tensor([[3.0, 4.0], [0.0, 0.0]])

TERMS: dict[str, tuple[dict[str, Any], int, float]] = {
    "a target": ({"target": TARGET}, 4, 6.25),
    "a target and a count of its own": ({"target": TARGET, "elements": 2}, 2, 6.25),
    "a target of whole numbers": ({"target": TARGET.long()}, 4, 6.25),
    "a target in half precision": ({"target": TARGET.to(torch.bfloat16)}, 4, 6.25),
    "a reference": ({"reference": 2.3, "elements": 7}, 7, 2.3),
}


@pytest.mark.parametrize("how", TERMS)
def test_a_term_knows_its_count_and_its_scale(how: str) -> None:
    given, count, scale = TERMS[how]
    term = LossTerm(value=VALUE, **given)
    assert term.count() == count
    assert float(term.scale()) == scale


def test_a_term_without_a_scale_has_none() -> None:
    term = LossTerm(value=VALUE, no_reference="a penalty has no target", elements=1)
    assert term.scale() != term.scale(), "not a number"


def test_a_term_without_elements_has_nothing_to_score() -> None:
    term = LossTerm(value=torch.tensor(float("nan")), reference=2.0, elements=0)
    assert term.numbers("fit") == (0.0, 0, 0.0)


def test_a_scale_holds_on_to_no_gradient() -> None:
    target = torch.ones(3, requires_grad=True)
    assert not isinstance(LossTerm(value=VALUE, target=target).scale(), torch.Tensor)


REFUSED_TERMS: dict[str, tuple[dict[str, Any], str]] = {
    "no scale": ({"elements": 4}, "LossTerm"),
    "no reason": ({"no_reference": "", "elements": 4}, "LossTerm"),
    "two scales": ({"target": TARGET, "reference": 1.0}, "LossTerm"),
    "a scale and a reason": ({"target": TARGET, "no_reference": "none"}, "LossTerm"),
    "three scales": ({"target": TARGET, "reference": 1.0, "no_reference": "none"}, "LossTerm"),
    "a reference without a count": ({"reference": 1.0}, "LossTerm.elements"),
    "a reason without a count": ({"no_reference": "none"}, "LossTerm.elements"),
    "a count below nothing": ({"reference": 1.0, "elements": -1}, "LossTerm.elements"),
    "a reference below zero": ({"reference": -1.0, "elements": 1}, "LossTerm.reference"),
    "an imaginary part": ({"target": TARGET, "value": torch.tensor(1 + 2j)}, "LossTerm.value"),
    "a target with an imaginary part": ({"target": torch.ones(2, dtype=torch.cfloat)}, "LossTerm.target"),
    "a count that is a tensor": ({"reference": 1.0, "elements": torch.tensor(3)}, "LossTerm.elements"),
    "a reference that is not finite": ({"reference": float("nan"), "elements": 1}, "LossTerm.reference"),
    "a reference that is a tensor": ({"reference": torch.ones(2), "elements": 1}, "LossTerm.reference"),
    "a weight that is not finite": ({"target": TARGET, "weight": float("inf")}, "LossTerm.weight"),
    "a weight that is a tensor": ({"target": TARGET, "weight": torch.tensor(1.0)}, "LossTerm.weight"),
    "one value for each example": ({"target": TARGET, "value": torch.ones(2)}, "LossTerm.value"),
    "a value that is a float": ({"target": TARGET, "value": 0.5}, "LossTerm.value"),
}


@pytest.mark.parametrize("why", REFUSED_TERMS)
def test_a_term_that_does_not_say_what_it_means_is_refused(why: str) -> None:
    given, field = REFUSED_TERMS[why]
    with pytest.raises(PlanError) as refusal:
        LossTerm(**{"value": VALUE, **given})
    assert refusal.value.field == field


# --- what an examination is given ---------------------------------------------------------------------------

PICTURES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "grey": ((8, 12), (8, 12)),
    "colours": ((8, 12, 3), (8, 12, 3)),
    "grey of one example": ((1, 8, 12), (8, 12)),
    "colours of one example": ((1, 8, 12, 3), (8, 12, 3)),
    "one line of colours": ((1, 12, 3), (1, 12, 3)),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_keeps_its_whole_extent(kind: str) -> None:
    # covers QC-04
    shape, drawn = PICTURES[kind]
    assert Image(value=torch.zeros(shape)).pixels().shape == drawn


NOT_GIVEN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a picture that is a list": (Image, {"value": [[0.0]]}, "recipe.panels"),
    "a picture with its channel first": (Image, {"value": torch.zeros(3, 8, 8)}, "recipe.panels"),
    "a picture of two examples": (Image, {"value": torch.zeros(2, 8, 8)}, "recipe.panels"),
    "a picture of nothing": (Image, {"value": torch.zeros(0, 8)}, "recipe.panels"),
    "a line": (Image, {"value": torch.zeros(8)}, "recipe.panels"),
    "a picture without a range": (Image, {"value": torch.zeros(8, 8), "low": 1.0}, "recipe.panels"),
    "a range that is not finite": (
        Image,
        {"value": torch.zeros(8, 8), "high": float("inf")},
        "recipe.panels",
    ),
    "logits": (
        Classes,
        {"probabilities": torch.tensor([[2.0, -1.0]]), "label": torch.tensor([0])},
        "recipe.classify",
    ),
    "shares of something else": (
        Classes,
        {"probabilities": torch.tensor([[0.5, 0.2]]), "label": torch.tensor([0])},
        "recipe.classify",
    ),
    "a label that is no class": (
        Classes,
        {"probabilities": torch.tensor([[0.5, 0.5]]), "label": torch.tensor([2])},
        "recipe.classify",
    ),
    "a label that is a share": (
        Classes,
        {"probabilities": torch.tensor([[0.5, 0.5]]), "label": torch.tensor([1.0])},
        "recipe.classify",
    ),
    "labels of other examples": (
        Classes,
        {"probabilities": torch.tensor([[0.5, 0.5]]), "label": torch.tensor([1, 0])},
        "recipe.classify",
    ),
    "one class": (
        Classes,
        {"probabilities": torch.ones(1, 1), "label": torch.tensor([0])},
        "recipe.classify",
    ),
    "a likelihood for each token": (Text, {"nats": torch.zeros(1, 9), "content": [b"a"]}, "recipe.text"),
    "fewer texts than likelihoods": (Text, {"nats": torch.zeros(2), "content": [b"a"]}, "recipe.text"),
    "text that is not encoded": (Text, {"nats": torch.zeros(1), "content": ["a"]}, "recipe.text"),
}


@pytest.mark.parametrize("why", NOT_GIVEN)
def test_another_shape_is_refused_by_the_name_of_the_method(why: str) -> None:
    kind, given, field = NOT_GIVEN[why]
    with pytest.raises(GateError) as refusal:
        kind(**given)
    assert refusal.value.field == field


def test_probabilities_of_half_precision_and_those_that_are_not_finite_are_let_through() -> None:
    logits = torch.randn(50, 10, generator=torch.Generator().manual_seed(3))
    label = torch.zeros(50, dtype=torch.int64)
    assert Classes(probabilities=logits.bfloat16().softmax(1), label=label).label is label
    broken = torch.full((1, 3), float("nan"))  # which fails the example, and not the recipe
    assert Classes(probabilities=broken, label=torch.tensor([0])).probabilities is broken


def test_a_field_that_has_to_be_used_needs_a_recipe_that_can_be_asked(tmp_path: Path) -> None:
    with_fields = BARE + "    def fields(self, model, batch): ...\n"
    recipe = load_recipe("bare:Bare", folder(tmp_path / "a", bare=with_fields))
    watched = FieldBounds(space="linear", low=5, high=95, collapse=0.2)
    check_fields(recipe, {"code": watched})
    with pytest.raises(PlanError) as refusal:
        check_fields(recipe, {"code": watched, "other": watched.model_copy(update={"used": 0.1})})
    assert refusal.value.field == "qc.fields.other.used"
    answers = with_fields + "    def losses_given(self, model, batch, fields): ...\n"
    recipe = load_recipe("bare:Bare", folder(tmp_path / "b", bare=answers))
    check_fields(recipe, {"other": watched.model_copy(update={"used": 0.1})})
    with pytest.raises(PlanError, match="has no fields"):
        check_fields(load_recipe("bare:Bare", folder(tmp_path / "c", bare=BARE)), {"code": watched})
