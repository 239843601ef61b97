"""What is built is what can be trained and saved: no cast unseen, no parameter without a shape, names that are tied.

FAULT-A03 FAULT-A17 FAULT-A20
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from smallrun import Net, Run, Small, is_exact, resumed
from torch import nn

from raykit.errors import CorruptError, GateError, PlanError
from raykit.train.base import Base, load_base
from raykit.train.build import make_model, require_norms
from raykit.train.state import FIRST, Capture, format_of, restore, restore_model
from raykit.train.tensors import HostCopy, read_tensors

# --- what is cast -------------------------------------------------------------------------------------------


class Many(Net):
    """Tensors of every kind that a model can have beside its real parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.polar(torch.ones(2), torch.tensor([0.5, 2.0])))
        self.register_buffer("rope", torch.polar(torch.ones(3), torch.arange(3.0)))
        self.register_buffer("wide", torch.tensor([1 + 2j, 3.5 - 1j], dtype=torch.complex128))
        self.register_buffer("count", torch.tensor(2.0**24, dtype=torch.float64))
        self.register_buffer("total", torch.tensor(2.0**40 + 1, dtype=torch.float64))
        self.register_buffer("codes", torch.arange(3, dtype=torch.int8))
        self.register_buffer("short", torch.tensor([0.5], dtype=torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.count += 1
            self.total += 1
        return super().forward(x) * self.turn.abs()


class Counts(Small):
    def model(self, params: Any) -> nn.Module:
        return Many()


KEPT = {
    "turn",
    "rope",
    "wide",
    "count",
    "total",
    "codes",
    "short",
    "body.1.running_mean",
    "body.1.running_var",
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_only_real_parameters_take_the_plans_dtype(dtype: str) -> None:
    """FAULT-A03: complex lost its imaginary part, a float64 counter stood still at 16,777,216."""
    made = Many()
    torch.manual_seed(0)
    model = make_model(Counts(), None, seed=3, device=torch.device("cpu"), dtype=dtype)
    want, now = made.state_dict(), model.state_dict()
    for name in KEPT:
        assert now[name].dtype == want[name].dtype, name
        assert now[name].equal(want[name]), name
    for name, parameter in model.named_parameters():
        assert str(parameter.dtype) == ("torch.complex64" if name == "turn" else f"torch.{dtype}"), name


def test_what_is_cast_is_listed() -> None:
    wanted = SimpleNamespace(params="bfloat16", optimizer="bfloat16", autocast="none")
    assert Run(dtype=wanted).built.said == (
        "cast from float32 to bfloat16, as run.dtype.params says: body.0.weight, body.0.bias, body.1.weight and 3 more",
    )
    assert Run(Counts()).built.said == ()


def test_statistics_that_no_cpu_computes_with_are_refused_by_name() -> None:
    """They stay what the recipe made them, so that the recipe has to say it."""
    wanted = SimpleNamespace(params="bfloat16", optimizer="bfloat16", autocast="none")
    run = Run(dtype=wanted)
    with pytest.raises(
        GateError, match=r"body.1 has statistics of torch.float32 and parameters of torch.bfloat16"
    ):
        require_norms(run.live.model)
    run.live.model.to(torch.bfloat16)
    require_norms(run.live.model)
    require_norms(Run().live.model)


def test_counters_and_complex_tensors_are_trained_and_resumed_to_the_bit() -> None:
    assert is_exact(Counts, stop=3, end=6)
    run = Run(Counts())
    run.to(3)
    model = resumed(Counts, run.saved()).live.model
    assert model.count.item() == 2.0**24 + 3 and model.total.item() == 2.0**40 + 4
    assert model.turn.equal(run.live.model.turn) and model.wide.dtype == torch.complex128
    assert model.wide.tolist() == [1 + 2j, 3.5 - 1j]


def test_a_checkpoint_of_before_whose_buffers_were_cast_goes_on_with_them() -> None:
    """The first format's buffers took the plan's dtype: such a run is restored as it was, and its weights are read."""
    wanted = SimpleNamespace(params="bfloat16", optimizer="bfloat16", autocast="none")
    before, now = Run(dtype=wanted), Run(dtype=wanted)
    before.live.model.to(torch.bfloat16)
    capture = Capture(rank=0, pin=False)
    capture.take(before.live, format=FIRST)
    files = capture.held()
    restore(now.live, files, rank=0)
    assert now.live.model.body[1].running_mean.dtype == torch.bfloat16
    model = make_model(Small(), None, seed=3, device=torch.device("cpu"), dtype="bfloat16")
    with pytest.raises(CorruptError, match="running_mean has dtype"):
        restore_model(model, files["model.safetensors"])
    restore_model(model, files["model.safetensors"], format=format_of(files))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_tensor_is_refused_by_name() -> None:
    class Quantised(Small):
        def model(self, params: Any) -> nn.Module:
            model = Net()
            model.register_buffer("table", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
            return model

    with pytest.raises(GateError, match=r"table is of type torch.qint8, which cannot be saved"):
        Run(Quantised()).saved()


# --- what cannot be built -----------------------------------------------------------------------------------


class Lazy(Small):
    def model(self, params: Any) -> nn.Module:
        return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())


def test_a_layer_without_a_shape_is_refused_by_name() -> None:
    """FAULT-A17: a raw error out of the save, which was tried again."""
    with pytest.raises(GateError, match=r"0.weight has no shape") as refusal:
        Run(Lazy())
    assert "run one batch first" in (refusal.value.remedy or "")


def test_a_parameter_that_is_not_in_the_model_is_refused_by_name() -> None:
    class OverACopy(Small):
        def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
            return torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(3, 2))], lr=0.1)

    with pytest.raises(GateError, match=r"not in the model: number 6 of its group 0, \[3, 2\]"):
        Run(OverACopy())


@pytest.mark.parametrize("method", ["model", "optimizer", "scheduler"])
def test_what_the_recipe_raises_while_it_is_built_is_a_refusal_with_file_and_line(method: str) -> None:
    """FAULT-A16: Ray took it for a lost gang and started it three times."""

    class Raises(Small):
        pass

    def fails(*arguments: Any) -> Any:
        return torch.ones(2).view(3)

    setattr(Raises, method, fails)
    with pytest.raises(PlanError, match=f"recipe.{method} raised RuntimeError: shape") as refusal:
        Run(Raises())
    assert refusal.value.rule is not None and refusal.value.rule.startswith("see test_build_state.py, line ")


# --- names that are tied ------------------------------------------------------------------------------------


class Tied(Net):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 2)
        self.out.weight = self.head.weight


def file_of(tensors: dict[str, torch.Tensor]) -> bytes:
    copy = HostCopy()
    copy.take(tensors)
    return b"".join(bytes(chunk) for chunk in copy.stream())


def weights(**change: torch.Tensor | None) -> bytes:
    torch.manual_seed(5)
    given = {**Tied().state_dict(), **{name.replace("__", "."): value for name, value in change.items()}}
    return file_of({name: value for name, value in given.items() if value is not None})


def base() -> Base:
    locked: Any = SimpleNamespace(candidate="elsewhere", manifest="a" * 64)
    return Base(locked=locked, optimizer=False)


def adopt(live: Any, data: bytes) -> None:
    load_base(live, base(), {"model": bytearray(data)}, rank=0)


class TiedRecipe(Small):
    def model(self, params: Any) -> nn.Module:
        return Tied()


@pytest.mark.parametrize("gone", ["head__weight", "out__weight"])
def test_one_of_two_tied_names_is_enough(gone: str) -> None:
    """FAULT-A20: refused as "another model"."""
    whole = read_tensors(weights(), "weights")[1]
    live = Run(TiedRecipe()).live
    adopt(live, weights(**{gone: None}))
    assert live.model.head.weight is live.model.out.weight
    assert live.model.head.weight.equal(whole["head.weight"])
    restore_model(Tied(), weights(**{gone: None}))


def test_two_values_for_one_tensor_are_refused_by_name() -> None:
    """FAULT-A20: one silently overwrote the other."""
    data = weights(out__weight=torch.zeros(2, 8))
    with pytest.raises(
        GateError, match=r"head.weight and out.weight have different values in elsewhere \(a{12}\)"
    ):
        adopt(Run(TiedRecipe()).live, data)
    with pytest.raises(
        GateError, match=r"head.weight and out.weight have different values in model.safetensors"
    ):
        restore_model(Tied(), data)


def test_a_missing_name_that_nothing_is_tied_to_is_refused_as_before() -> None:
    with pytest.raises(GateError, match=r"out.bias is not in the base"):
        adopt(Run(TiedRecipe()).live, weights(out__bias=None))


def test_tied_weights_have_one_name_in_the_optimizer_and_are_resumed_to_the_bit() -> None:
    assert is_exact(TiedRecipe, stop=3, end=6)
    run = Run(TiedRecipe())
    run.to(1)
    tree, _ = read_tensors(run.saved()["optimizer.safetensors"], "it")
    assert "head.weight" in tree["state"] and "out.weight" not in tree["state"]
