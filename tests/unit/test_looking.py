"""Looking changes nothing, and looks at the right thing: the guard, what no checkpoint holds, and asking again.

covers FAULT-B01 FAULT-B02 FAULT-B03 FAULT-B04 FAULT-B08 FAULT-C03 FAULT-C04 FAULT-A24
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_qc_unit import PROBE, Job, _as_it_was  # noqa: F401 - the fixture is used by every test
from torch import nn

from raykit.errors import GateError
from raykit.train.build import make_model
from raykit.train.hanging import apart, ids_on, require_all_saved
from raykit.train.looking import Asked, VoidError, Watch, fingerprints, looking
from raykit.work.again import Elsewhere
from raykit.work.qc_unit import Bench


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
    assert fingerprints([]) == []
    for size in (1003, 70_003):
        tensor = (torch.randn(size, dtype=torch.float64) * 3).to(dtype)
        (before,) = fingerprints([tensor])
        assert fingerprints([tensor.clone()]) == [before]
        for place in (0, 1, 511, size - 2, size - 1):
            other = tensor.clone()
            bits = other.view(torch.uint8)
            bits[place * tensor.element_size()] ^= 1
            assert fingerprints([other]) != [before], place
        assert fingerprints([tensor[1:]]) != [before]


def test_the_guard_costs_a_few_percent_at_most() -> None:
    """A pass over a model of 60 layers; the figure is printed, and the bound is far above it: machines are busy."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(60)])
    batch = torch.randn(64, 128)

    class Many:
        def evaluate(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = model(batch)
            return out

    def took(asked: Any) -> float:
        start = time.perf_counter()
        for _ in range(10):
            asked.evaluate(model, batch)
        return time.perf_counter() - start

    plain, guarded = [], []
    with torch.no_grad():
        for _ in range(9):
            plain.append(took(Many()))
            with looking(Many(), model) as asked:
                guarded.append(took(asked))
    share = min(guarded) / min(plain) - 1
    print(f"a call costs {100 * share:.1f} % more")
    assert share < 0.5


# --- what no checkpoint holds -------------------------------------------------------------------------------


class Keeps:
    """A recipe that makes things with its model, as a test says."""

    def __init__(self, make: Callable[[Keeps, Net], Any]) -> None:
        self.make = make
        self.parts: dict[str, Any] = {}

    def model(self, params: Any) -> Net:
        model = Net()
        self.make(self, model)
        return model


def require(make: Callable[[Keeps, Net], Any], *, recipe: Keeps | None = None) -> None:
    untouched = recipe or Keeps(make)

    def made(seed: int) -> tuple[Any, nn.Module]:
        other = apart(untouched)
        return other, make_model(other, None, seed=seed, device=torch.device("cpu"), dtype="float32")

    before = ids_on(untouched)
    require_all_saved(*made(1), before, lambda: made(2))


def holds(name: str, make: Callable[[Net], Any]) -> Callable[[Keeps, Net], Any]:
    return lambda recipe, model: setattr(recipe, name, make(model))


class Ema:
    """Not a module: the values alone."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: each.detach().clone() for name, each in model.named_parameters()}


def zeroed(recipe: Keeps, model: Net) -> None:
    for each in model.parameters():
        each.data.zero_()
    recipe.ema = copy.deepcopy(model)  # type: ignore[attr-defined]


def closed_over(recipe: Keeps, model: Net) -> None:
    twin = copy.deepcopy(model)
    recipe.score = lambda x: twin(x)  # type: ignore[attr-defined]


def in_a_dict(recipe: Keeps, model: Net) -> None:
    recipe.parts["ema"] = copy.deepcopy(model)


BESIDE: dict[str, tuple[Callable[[Keeps, Net], Any], str]] = {
    "a copy of the model": (holds("ema", copy.deepcopy), "recipe.ema"),
    "a copy that no seed changes": (zeroed, "recipe.ema"),
    "an average of torch": (holds("avg", torch.optim.swa_utils.AveragedModel), "recipe.avg"),
    "a copy in a dict that was there": (in_a_dict, "recipe.parts['ema']"),
    "values alone": (holds("ema", Ema), "recipe.ema.shadow"),
    "a head of its own": (holds("head", lambda model: nn.Linear(4, 2)), "recipe.head"),
    "a random table": (holds("table", lambda model: [torch.randn(3)]), "recipe.table"),
    "in a closure": (closed_over, "recipe.score()"),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_a_network_or_tensor_that_no_checkpoint_holds_is_refused_by_name(beside: str) -> None:
    make, name = BESIDE[beside]
    with pytest.raises(GateError, match="that no checkpoint holds") as raised:
        require(make)
    assert raised.value.field == name
    assert raised.value.remedy and "state_dict" in raised.value.remedy


def pretrained(model: Net) -> nn.Module:
    generator = torch.Generator().manual_seed(9)
    other = Net().requires_grad_(False)
    for each in other.parameters():
        each.copy_(torch.randn(each.shape, generator=generator))
    return other


def normed(recipe: Keeps, model: Net) -> None:
    model.head = torch.nn.utils.weight_norm(model.head)  # type: ignore[assignment]


def rope(recipe: Keeps, model: Net) -> None:
    model.cos = torch.arange(8).float().cos()  # type: ignore[assignment]
    model.register_buffer("sin", torch.arange(8).float().sin(), persistent=False)


CLEAN: dict[str, Callable[[Keeps, Net], Any]] = {
    "the model itself": holds("net", lambda model: model),
    "a part of it, and the optimizer's view": holds(
        "parts", lambda model: [model.head, list(model.parameters())]
    ),
    "a compiled one": holds("fast", torch.compile),
    "a pretrained network of the same shapes": holds("teacher", pretrained),
    "class weights": holds("loss", lambda model: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))),
    "a table": holds("table", lambda model: {"mean": torch.zeros(4), "names": ["a"] * 5000}),
    "caches of positions": rope,
    "a weight norm": normed,
    "a spectral norm": lambda recipe, model: torch.nn.utils.spectral_norm(model.head),
    "a step that needs nothing": lambda recipe, model: None,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("clean", CLEAN)
def test_what_is_the_same_in_each_process_is_nobodys_fault(clean: str) -> None:
    require(CLEAN[clean])


class Declares(Keeps):
    def state_dict(self) -> dict[str, Any]:
        return {"shadow": [each.detach().clone() for each in self.ema.state_dict().values()]}  # type: ignore[attr-defined]


def test_what_the_recipes_own_state_holds_is_in_the_checkpoint() -> None:
    require(lambda recipe, model: None, recipe=Declares(holds("ema", copy.deepcopy)))


def test_what_an_optimizer_trains_and_the_model_lacks_is_refused() -> None:
    recipe = Keeps(holds("scale", lambda model: nn.Parameter(torch.zeros(2))))
    before = ids_on(recipe)
    model = recipe.model(None)
    scale = recipe.scale  # type: ignore[attr-defined]
    with pytest.raises(GateError, match="an optimizer trains it") as raised:
        require_all_saved(
            recipe, model, before, lambda: (recipe, model), trained=[*model.parameters(), scale]
        )
    assert raised.value.field == "recipe.scale"


# --- in QC --------------------------------------------------------------------------------------------------

VARIANT = """

class Variant(Probe):
{body}
"""


def job_of(folder: Path, body: str, above: str = "") -> Job:
    return Job(folder, code=PROBE + above + VARIANT.format(body=body), quota=3)


def elsewhere(job: Job) -> Bench:
    return Bench(job.store, "probe", job.suite, job.roster, job.folder / "bench", elsewhere=Elsewhere())


def test_qc_scores_nothing_that_evaluate_has_changed(tmp_path: Path) -> None:
    body = "    def evaluate(self, model, batch):\n        model.train()\n        return super().evaluate(model, batch)"
    job = job_of(tmp_path, body)
    with pytest.raises(VoidError, match="sets the mode of the model") as raised:
        job.bench()(*job.commit(0), None)
    assert raised.value.field == "recipe.evaluate"


def test_qc_asks_no_network_that_no_checkpoint_holds(tmp_path: Path) -> None:
    body = """
    def model(self, params):
        import copy
        model = super().model(params)
        self.ema = copy.deepcopy(model)
        return model

    def evaluate(self, model, batch):
        return super().evaluate(self.ema, batch)
"""
    job = job_of(tmp_path, body)
    with pytest.raises(GateError, match="a network that no checkpoint holds") as raised:
        job.bench()(*job.commit(0), None)
    assert raised.value.field == "recipe.ema"


def test_a_cache_of_scores_on_the_recipe_ends_with_its_checkpoint(tmp_path: Path) -> None:
    body = """
    def __init__(self):
        super().__init__()
        self.known = {}

    def evaluate(self, model, batch):
        key = batch["text"][0] + str(batch["kind"][0].item())
        if key not in self.known:
            self.known[key] = super().evaluate(model, batch)["error"]
        return {"error": self.known[key]}
"""
    job = job_of(tmp_path, body)
    plain = Job(tmp_path / "plain", quota=3)
    bench = job.bench()
    first = bench(*job.commit(0), None).receipt
    job.train(50)
    second = bench(*job.commit(10), first).receipt
    assert first.metrics["error"].value != second.metrics["error"].value
    assert plain.bench()(*plain.commit(0), None).receipt.metrics.keys() == first.metrics.keys()


COUNTS = """
    def evaluate(self, model, batch):
        self.asked = getattr(self, "asked", 0) + 1
        return {"error": super().evaluate(model, batch)["error"] + self.asked}
"""

RANDOM = """
    def evaluate(self, model, batch):
        import os
        return {"error": torch.tensor([float(os.urandom(1)[0] + 256 * os.urandom(1)[0])])}
"""


@pytest.mark.parametrize("body", [COUNTS, RANDOM])
def test_a_unit_that_depends_on_what_came_before_it_is_no_score(body: str, tmp_path: Path) -> None:
    job = job_of(tmp_path, body)
    with pytest.raises(GateError, match="asked again after the others: error of evaluate") as raised:
        job.bench()(*job.commit(0), None)
    assert raised.value.field == "recipe.evaluate"


HASHES = """
    def evaluate(self, model, batch):
        return {"error": torch.tensor([float(hash(batch["text"][0] + "!") % 1000)])}
"""

CACHES = """
    def evaluate(self, model, batch):
        key = batch["text"][0] + str(batch["kind"][0].item())
        if key not in KNOWN:
            KNOWN[key] = super().evaluate(model, batch)["error"]
        return {"error": KNOWN[key]}
"""


def test_a_unit_that_depends_on_the_process_is_no_score(tmp_path: Path) -> None:
    job = job_of(tmp_path, HASHES)
    with pytest.raises(GateError, match="asked again by another process: error of evaluate") as raised:
        elsewhere(job)(*job.commit(0), None)
    assert raised.value.field == "recipe.evaluate" and raised.value.remedy is not None


def test_scores_of_another_checkpoint_are_found_by_a_fresh_process(tmp_path: Path) -> None:
    job = job_of(tmp_path, CACHES, above="\n\nKNOWN = {}\n")
    bench = elsewhere(job)
    first = bench(*job.commit(0), None).receipt
    job.train(50)
    with pytest.raises(GateError, match="asked again by another process: error of evaluate"):
        bench(*job.commit(10), first)


def test_which_checkpoints_another_process_is_asked_about() -> None:
    asked, due = Elsewhere(), []
    for number in range(1, 18):
        due += [number] if asked.due else []
        asked._count += 1
    assert due == [1, 2, 4, 8, 16]
