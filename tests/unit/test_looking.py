"""Looking changes nothing, and looks at the right thing: the guard, what no checkpoint holds, and asking again.

covers FAULT-B01 FAULT-B02 FAULT-B03 FAULT-B04 FAULT-B08 FAULT-C03 FAULT-C04 FAULT-A24
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from raykit.train.looking import Asked, VoidError, Watch, fingerprints, looking


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """What a bench fixes in its process goes with the test."""
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    modules, path = set(sys.modules), list(sys.path)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(exact)
    torch.utils.deterministic.fill_uninitialized_memory = filled
    for name in set(sys.modules) - modules:
        if name in ("recipe", "variant"):
            del sys.modules[name]
    sys.path[:] = path


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)
        self.register_buffer("cache", torch.zeros(3), persistent=False)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.drop(self.norm(x)))
        return out


class Looks:
    """A recipe whose `evaluate` does what a test says."""

    def __init__(self, act: Callable[[Looks, Net], Any] = lambda recipe, model: None) -> None:
        self.act = act
        self.own = torch.Generator().manual_seed(1)
        self.drawn = {"inner": [np.random.default_rng(1), random.Random(1)]}
        self.tally = 0

    def evaluate(self, model: Net, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        self.act(self, model)
        return {"error": model(batch).square().mean(1)}


def ask(act: Callable[[Looks, Net], Any]) -> tuple[Looks, Net, VoidError | None]:
    """A pass of two batches over a model that was trained a little; what was refused, if something was."""
    torch.manual_seed(3)
    model = Net()
    model(torch.randn(8, 4)).sum().backward()
    recipe, batch = Looks(act), torch.randn(5, 4)
    try:
        with looking(recipe, model) as asked:
            asked.evaluate(model, batch)
            asked.evaluate(model, batch)
    except VoidError as error:
        return recipe, model, error
    return recipe, model, None


def backward(recipe: Looks, model: Net) -> None:
    with torch.enable_grad():
        model(torch.ones(2, 4)).sum().backward()


def replaced(recipe: Looks, model: Net) -> None:
    model.head.weight = nn.Parameter(torch.zeros(2, 4))


def unfrozen(recipe: Looks, model: Net) -> None:
    model.head.weight.requires_grad_(False)


def grown(recipe: Looks, model: Net) -> None:
    if not hasattr(model, "more"):
        model.register_buffer("more", torch.ones(1))


CHANGES: dict[str, tuple[Callable[[Looks, Net], Any], str]] = {
    "train mode": (lambda recipe, model: model.train(), "sets the mode of the model, norm"),
    "mode of a part": (lambda recipe, model: model.drop.train(), "sets the mode of drop"),
    "a weight": (lambda recipe, model: model.head.weight.add_(1), "writes to head.weight"),
    "a weight through data": (
        lambda recipe, model: model.head.weight.data.add_(1),
        "writes to head.weight past its version counter",
    ),
    "other data": (
        lambda recipe, model: setattr(model.head.bias, "data", torch.ones(2)),
        "writes to head.bias",
    ),
    "a persistent buffer": (
        lambda recipe, model: model.norm.running_mean.add_(1),
        "writes to norm.running_mean",
    ),
    "another parameter": (replaced, "replaces head.weight"),
    "frozen": (unfrozen, "freezes head.weight"),
    "gradients": (backward, "leaves a gradient at"),
    "a new buffer": (grown, "adds more"),
    "default dtype": (lambda recipe, model: torch.set_default_dtype(torch.float64), "sets the default dtype"),
    "gradients recorded": (
        lambda recipe, model: torch.set_grad_enabled(True),
        "sets whether gradients are recorded",
    ),
    "a generator of torch": (
        lambda recipe, model: torch.rand(1, generator=recipe.own),
        "draws from recipe.own",
    ),
    "a generator of numpy": (
        lambda recipe, model: recipe.drawn["inner"][0].normal(),
        r"draws from recipe.drawn\['inner'\]\[0\]",
    ),
    "a generator of Python": (
        lambda recipe, model: recipe.drawn["inner"][1].random(),
        r"draws from recipe.drawn\['inner'\]\[1\]",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_asking_changes_is_named_and_the_answer_void(change: str) -> None:
    act, what = CHANGES[change]
    before = torch.get_default_dtype(), torch.is_grad_enabled()
    recipe, model, refused = ask(act)
    assert refused is not None and refused.field == "recipe.evaluate" and refused.remedy
    refused_with = pytest.raises(VoidError, match=what)
    with refused_with:
        raise refused
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == before
    assert all(module.training for module in model.modules()), "the mode is as it was before it looked"
    assert model.head.weight.requires_grad
    fresh = Looks()
    assert torch.equal(recipe.own.get_state(), fresh.own.get_state())
    assert recipe.drawn["inner"][0].normal() == fresh.drawn["inner"][0].normal()


def cached(recipe: Looks, model: Net) -> None:
    model.cache.add_(1)
    model.drop.seen = torch.ones(3)
    recipe.tally += 1
    recipe.table = {"rows": [torch.rand(2)]}


def mode_and_back(recipe: Looks, model: Net) -> None:
    model.drop.train()
    model.drop.eval()
    model.zero_grad()
    np.random.rand()
    random.random()
    torch.rand(3)


def saliency(recipe: Looks, model: Net) -> None:
    with torch.enable_grad():
        x = torch.ones(2, 4, requires_grad=True)
        torch.autograd.grad(model(x).sum(), x)


@pytest.mark.parametrize("act", [cached, mode_and_back, saliency])
def test_caches_and_the_global_generators_are_anyones(act: Callable[[Looks, Net], Any]) -> None:
    _, _, refused = ask(act)
    assert refused is None


def test_what_a_method_raises_goes_first_and_its_modes_are_put_back() -> None:
    def raises(recipe: Looks, model: Net) -> None:
        model.train()
        raise ValueError("a bad row")

    torch.manual_seed(3)
    model = Net()
    watch = Watch(recipe := Looks(raises), model.eval())
    with pytest.raises(ValueError, match="a bad row"):
        Asked(recipe, watch).evaluate(model, torch.ones(1, 4))
    assert not model.training and not model.norm.training
    watch.close()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.cfloat]
)
def test_a_fingerprint_shows_every_single_change(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    tensor = (torch.randn(1003, dtype=torch.float64) * 3).to(dtype)
    (before,) = fingerprints([tensor])
    assert fingerprints([tensor.clone()]) == [before]
    for place in (0, 1, 511, 1001, 1002):
        other = tensor.clone()
        bits = other.view(torch.uint8)
        bits[place * tensor.element_size()] ^= 1
        assert fingerprints([other]) != [before], place
    assert fingerprints([tensor[1:]]) != [before] and fingerprints([]) == []


def test_the_guard_costs_a_few_percent_at_most() -> None:
    """As measured over a model of 60 layers; the figure is printed, and the bound is far above it."""
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(60)])
    batch = torch.randn(64, 256)

    class Many:
        def evaluate(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = model(batch)
            return out

    def took(asked: Any) -> float:
        start = time.perf_counter()
        for _ in range(20):
            asked.evaluate(model, batch)
        return time.perf_counter() - start

    plain, guarded = [], []
    with torch.no_grad():
        for _ in range(5):
            plain.append(took(Many()))
            with looking(Many(), model) as asked:
                guarded.append(took(asked))
    share = sorted(guarded)[2] / sorted(plain)[2] - 1
    print(f"a call costs {100 * share:.1f} % more")
    assert share < 0.5
