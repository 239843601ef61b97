"""The bundled job: its plan parses, its recipe keeps the contract, and it learns more than it is told for free."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import raykit
from raykit import history
from raykit.data import randomness
from raykit.data.members import describe, split
from raykit.errors import PlanError
from raykit.plan import load_plan
from raykit.train import rng
from raykit.train.find_recipe import load_recipe
from raykit.train.inputs import describe_dataset
from raykit.train.params import check_params
from raykit.train.recipe import Recipe

FOLDER = Path(__file__).parents[2] / "jobs" / "digits"
PLAN = load_plan((FOLDER / "plan.toml").read_bytes(), where="plan.toml")


class OnlyCalls(nn.Module):
    """What a wrapper for several ranks leaves of a model: it can be called, and has none of its attributes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._inner = (model,)  # in a tuple, so that not even its parameters show

    def forward(self, *args: Any) -> Any:
        return self._inner[0](*args)


@pytest.fixture(scope="module")
def recipe() -> Any:
    found = load_recipe(PLAN.recipe, FOLDER)
    assert isinstance(found, Recipe)
    return found


@pytest.fixture(scope="module")
def params(recipe: Any) -> Any:
    return check_params(recipe, PLAN.run.params)


@pytest.fixture(scope="module")
def digits(recipe: Any, params: Any) -> Any:
    return recipe.dataset(None, params)


@pytest.fixture
def model(recipe: Any, params: Any) -> Any:
    rng.seed(randomness.init(PLAN.run.seed))
    return recipe.model(params)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(PLAN.run.threads)
    yield
    torch.set_num_threads(before)


def members(digits: Any) -> dict[str, torch.Tensor]:
    tables = split(describe_dataset(digits), PLAN.splits.shares(), PLAN.splits.group, 0)
    place = {name: index for index, name in enumerate(digits.ids)}
    return {
        role: torch.stack([digits[place[name]] for name in table["id"].to_pylist()])
        for role, table in tables.items()
    }


def train(recipe: Any, params: Any, images: torch.Tensor, updates: int) -> tuple[Any, list[float]]:
    """A plain loop with raykit's keys: the model, and the loss of every update."""
    rng.seed(randomness.init(PLAN.run.seed))
    model = recipe.model(params)
    optimizer = recipe.optimizer(model, params)
    order = np.random.default_rng(PLAN.run.seed)
    losses = []
    for update in range(1, updates + 1):
        batch = images[order.integers(len(images), size=PLAN.run.batch)]
        rng.seed(randomness.update(PLAN.run.seed, update, 0, 0))
        terms = recipe.losses(model, batch)
        loss = sum(term.value * term.weight for term in terms.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


@torch.no_grad()
def ratio(recipe: Any, model: nn.Module, images: torch.Tensor) -> float:
    rng.seed(randomness.evaluate(PLAN.run.seed, 0))
    term = recipe.losses(model, images)["recon"]
    found = history.ratio(term.value.item(), float(term.scale()))
    assert found is not None
    return found


def test_the_plan_is_short_and_says_every_parameter(recipe: Any, params: Any) -> None:
    lines = [line for line in (FOLDER / "plan.toml").read_text().splitlines() if line]
    assert len(lines) < 50
    assert max(map(len, lines)) <= 110
    assert set(PLAN.run.params) == set(
        vars(recipe.Params())
    )  # what changes the result is visible in the plan
    assert vars(params) == dict(PLAN.run.params)
    assert PLAN.qc is not None and set(PLAN.qc.fields) == {"latent", "code"}


def test_a_parameter_that_it_does_not_have_is_refused_by_name(recipe: Any) -> None:
    with pytest.raises(PlanError) as refused:
        check_params(recipe, {"widht": 32, "lr": "fast"})
    assert [finding.field for finding in refused.value.findings] == ["run.params.widht", "run.params.lr"]


def test_the_dataset_is_1797_named_digits_of_ten_kinds(digits: Any) -> None:
    assert len(digits) == 1797
    assert digits[0].shape == (1, 8, 8) and digits[0].dtype == torch.float32
    assert float(digits.images.min()) == -1.0 and float(digits.images.max()) == 1.0
    source = describe_dataset(digits)
    assert source.rows == 1797
    assert Counter(digits.strata).keys() == set("0123456789")
    # the same bytes described again are the same source, although nothing seeded the second reading
    again = describe(
        len(digits), digits.ids, None, digits.strata, lambda i: source.table["sha256"][i].as_py()
    )
    assert again.table.equals(source.table)
    assert describe_dataset(digits).table.equals(source.table)


def test_a_member_is_what_it_says_it_is_whatever_else_was_drawn(digits: Any) -> None:
    assert digits.deterministic
    rng.seed(1)
    first = digits[17].clone()
    rng.seed(2)
    assert torch.equal(digits[17], first)


def test_losses_only_call_the_model(recipe: Any, model: nn.Module, digits: Any) -> None:
    batch = digits.images[:64]
    rng.seed(5)
    terms = recipe.losses(OnlyCalls(model), batch)
    assert list(terms) == ["recon", "kl"]
    assert all(isinstance(term, raykit.LossTerm) and term.value.shape == () for term in terms.values())
    assert terms["recon"].count() == 64 * 8 * 8
    assert float(terms["recon"].scale()) == pytest.approx(float(batch.square().mean()))
    assert terms["kl"].count() == 64 * 8
    assert math.isnan(float(terms["kl"].scale())) and terms["kl"].no_reference
    assert terms["kl"].weight == PLAN.run.params["beta"]


def test_every_parameter_gets_a_finite_gradient(recipe: Any, model: nn.Module, digits: Any) -> None:
    terms = recipe.losses(model, digits.images[:64])
    sum(term.value * term.weight for term in terms.values()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


@torch.no_grad()
def test_a_metric_per_example_agrees_with_the_loss(recipe: Any, model: nn.Module, digits: Any) -> None:
    batch = digits.images[:50]
    rng.seed(7)
    per_example = recipe.evaluate(model, batch)["mse"]
    rng.seed(7)
    value = recipe.losses(model, batch)["recon"].value
    assert per_example.shape == (50,)
    assert float(per_example.mean()) == pytest.approx(float(value), rel=1e-5)


@torch.no_grad()
def test_a_pinned_scale_is_a_collapsed_field(recipe: Any, model: Any, digits: Any) -> None:
    # covers GOLD-28, QC-08, QC-09
    field = recipe.fields(model, digits.images[:64])["latent"]
    assert isinstance(field, raykit.Field) and field.space == "log"
    assert field.value.shape == (64, 8) and (field.value > 0).all()
    bounds = PLAN.qc.fields["latent"]

    def stats(reference: float | None) -> Any:
        values = recipe.fields(model, digits.images[:64])["latent"].value.double().log().flatten()
        percentiles = {"low": bounds.low, "high": bounds.high, "collapse": bounds.collapse}
        return history.field_stats(
            values.tolist(), space=bounds.space, reference_spread=reference, **percentiles
        )

    first = stats(None)
    assert not first.collapsed and first.spread > 0
    head = model.encoder[-1]
    head.weight[8:] = 0.0  # the rows that give the logarithm of the scale
    head.bias[8:] = 0.0
    pinned = stats(first.spread)
    assert pinned.collapsed and pinned.spread == 0.0 and pinned.median == 0.0


@torch.no_grad()
def test_a_forced_code_is_what_is_drawn(recipe: Any, model: Any, digits: Any) -> None:
    batch = digits.images[:8]
    rng.seed(3)
    own = recipe.fields(model, batch)
    assert list(own) == ["latent", "code"] and own["code"].space == "linear"
    given = {name: field.value for name, field in own.items()}

    def recon(**fields: torch.Tensor) -> float:
        rng.seed(3)
        return recipe.losses_given(model, batch, fields)["recon"].value.item()

    assert recon() == recon(**given)  # its own fields change nothing
    assert recon(code=given["code"].roll(1, 0)) != recon() != recon(latent=10 * given["latent"])


@torch.no_grad()
def test_the_panels_show_one_digit_and_what_is_drawn_of_it(recipe: Any, model: Any, digits: Any) -> None:
    panels = recipe.panels(model, digits.images[3:4])
    assert list(panels) == ["input", "drawn"]
    assert all(
        image.pixels().shape == (8, 8) and (image.low, image.high) == (-1, 1) for image in panels.values()
    )
    assert torch.equal(panels["input"].pixels(), digits.images[3, 0])


def test_a_hundred_updates_beat_the_mean_image_and_repeat_to_the_bit(
    recipe: Any, params: Any, digits: Any
) -> None:
    splits = members(digits)
    images, development = splits["train"], splits["development"]
    model, losses = train(recipe, params, images, 100)
    assert all(map(math.isfinite, losses))
    mean_image = (development - images.mean(0)).square().mean() / development.square().mean()
    trained = ratio(recipe, model, development)
    print(f"ratio {trained:.3f}, mean image {float(mean_image):.3f}")
    assert float(mean_image) > 0.35 > trained  # so the plan's threshold asks for more than the mean image
    again, repeated = train(recipe, params, images, 100)
    assert repeated == losses
    assert ratio(recipe, again, development) == trained


def test_the_recipe_in_the_documentation_is_complete_and_learns(tmp_path: Path) -> None:
    text = (FOLDER.parents[1] / "docs" / "RECIPES.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "documented.py").write_text(code)
    recipe = load_recipe("documented:Lines", tmp_path)
    params = check_params(recipe, {"width": 8})
    points = recipe.dataset(None, params)
    assert describe_dataset(points).rows == 400
    batch = torch.utils.data.default_collate([points[index] for index in range(400)])
    rng.seed(1)
    model = recipe.model(params)
    optimizer = recipe.optimizer(model, params)
    for _ in range(300):
        optimizer.zero_grad()
        term = recipe.losses(model, batch)["fit"]
        term.value.backward()
        optimizer.step()
    assert term.value.item() / float(term.scale()) < 0.1
