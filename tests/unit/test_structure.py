"""Structure that changes midway, gradients that nobody clears, and the mode that a model trains in.

FAULT-A01 FAULT-A09 FAULT-A10 FAULT-B18
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from smallrun import Net, Run, Small, is_exact
from torch import nn
from torch.nn.utils import parametrizations

from raykit.errors import GateError
from raykit.train.structure import Structure

# --- gradients ----------------------------------------------------------------------------------------------


class HeadOnly(Small):
    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.head.parameters(), lr=0.001)


def test_gradients_that_no_optimizer_holds_are_cleared_at_each_update() -> None:
    """FAULT-A01: seen was a norm that grew from 3 to 25, since nothing cleared what the optimizer does not hold."""
    run = Run(HeadOnly())
    norms = [figures.grad_norm for figures in run.to(12)]
    assert max(norms) < 3 * min(norms)
    assert is_exact(HeadOnly, stop=5, end=9)


def test_what_trains_and_no_optimizer_holds_is_named() -> None:
    assert Run(HeadOnly()).built.said == (
        "no optimizer holds body.0.weight, body.0.bias, body.1.weight and 1 more: trained by nothing, though its "
        "gradient counts in the norm and the clip",
    )
    assert Run().built.said == ()


# --- what is saved as structure -----------------------------------------------------------------------------


class Unfreezes(Small):
    """The body is frozen until update 8."""

    def model(self, params: Any) -> nn.Module:
        model = Net()
        model.body.requires_grad_(False)
        return model

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.01)

    def at(self, update: int, model: Any) -> None:
        if update == 8:
            model.body.requires_grad_(True)


class AddsGroup(Unfreezes):
    """The body is frozen, and in no group, until update 8."""

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        self.held = torch.optim.AdamW(model.head.parameters(), lr=0.01)
        return self.held

    def at(self, update: int, model: Any) -> None:
        super().at(update, model)
        if update == 8:
            self.held.add_param_group({"params": [*model.body.parameters()], "lr": 0.002})


class Freezes(Small):
    def at(self, update: int, model: Any) -> None:
        model.body[0].requires_grad_(update < 8)


@pytest.mark.parametrize("recipe", [Unfreezes, AddsGroup, Freezes])
@pytest.mark.parametrize("stop", [7, 10])
def test_what_is_frozen_and_which_groups_there_are_is_state(recipe: type[Small], stop: int) -> None:
    """FAULT-A09: a layer that was unfrozen at update 8 stayed frozen for good after a resume."""
    assert is_exact(recipe, stop=stop, end=14)


def test_a_layer_that_is_unfrozen_trains_and_counts_in_the_norm() -> None:
    run = Run(Unfreezes())
    run.to(7)
    before = run.live.model.body[0].weight.clone()
    run.to(9)
    assert not run.live.model.body[0].weight.equal(before)


# --- what is refused where it changes -----------------------------------------------------------------------


def grow(model: Any) -> None:
    model.seen = torch.cat([model.seen, torch.ones(1, 3)])


def buffer(value: Any, change: Callable[[Any], None], *, persistent: bool = True) -> type[Small]:
    class Buffered(Small):
        def model(self, params: Any) -> nn.Module:
            model = Net()
            model.register_buffer("seen", value, persistent=persistent)
            return model

        def at(self, update: int, model: Any) -> None:
            if update >= 8:
                change(model)

    return Buffered


def at_8(change: Callable[[Any], None]) -> type[Small]:
    class Changing(Small):
        def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
            model.held = [super().optimizer(model, params)]  # type: ignore[assignment]
            return model.held[0]

        def at(self, update: int, model: Any) -> None:
            if update == 8:
                change(model)

    return Changing


def replaced_head(model: Any) -> None:
    model.head = nn.Linear(8, 2)


def wider_head(model: Any) -> None:
    model.head = nn.Linear(8, 3)


def replaced_and_held(model: Any) -> None:
    model.head = nn.Linear(8, 2)
    model.held[0].add_param_group({"params": [*model.head.parameters()]})


def other_activation(model: Any) -> None:
    model.body[3] = nn.ReLU()


def regrouped(model: Any) -> None:
    group = model.held[0].param_groups[0]
    group["params"] = group["params"][:-1]


REFUSED: dict[str, tuple[type[Small], str]] = {
    "a buffer that was None": (
        buffer(None, lambda model: setattr(model, "seen", torch.ones(2))),
        "the buffer seen was None and is float32 \\[2\\]",
    ),
    "a buffer that is None": (
        buffer(torch.ones(2), lambda model: setattr(model, "seen", None)),
        "the buffer seen was float32 \\[2\\] and is None",
    ),
    "a buffer that grows from no rows": (
        buffer(torch.ones(0, 3), grow),
        "the buffer seen was float32 \\[0, 3\\] and is float32 \\[1, 3\\]",
    ),
    "a buffer of another type": (
        buffer(torch.ones(2), lambda model: setattr(model, "seen", torch.ones(2).double())),
        "the buffer seen was float32 \\[2\\] and is float64 \\[2\\]",
    ),
    "a new buffer": (
        at_8(lambda model: model.body.register_buffer("late", torch.ones(1))),
        "the buffer body.late is new",
    ),
    "a new parameter": (
        at_8(lambda model: setattr(model, "scale", nn.Parameter(torch.ones(1)))),
        "the parameter scale is new",
    ),
    "a parameter of another shape": (
        at_8(lambda model: setattr(model.head.bias, "data", torch.ones(1))),
        "the parameter head.bias was float32 \\[2\\] and is float32 \\[1\\]",
    ),
    "a wider head": (
        at_8(wider_head),
        "the parameter head.weight was float32 \\[2, 8\\] and is float32 \\[3, 8\\]",
    ),
    "a replaced head": (at_8(replaced_head), "the optimizer holds a parameter that is not in the model"),
    "a replaced head in a group": (
        at_8(replaced_and_held),
        "the optimizer holds a parameter that is not in the model",
    ),
    "another activation": (at_8(other_activation), "the module body.3 was a Tanh and is a ReLU"),
    "fewer parameters in a group": (
        at_8(regrouped),
        "the optimizer's group of body.0.bias, .* is gone, or of other",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_another_structure_is_refused_at_the_update_where_it_changes(what: str) -> None:
    """FAULT-A10: they went on, and every resume then ended in "corrupt ... stop and look"."""
    recipe, says = REFUSED[what]
    run = Run(recipe())
    assert len(run.to(7)) == 7
    with pytest.raises(GateError, match=f"update 8: {says}") as refusal:
        run.to(8)
    assert (refusal.value.remedy and refusal.value.field == "recipe.model") or "optimizer" in says


class Caches(Small):
    """What may come and go: caches that are not saved, and modules without tensors that are made anew."""

    def at(self, update: int, model: Any) -> None:
        model.register_buffer("cache", torch.arange(float(update)), persistent=False)
        model.loss = nn.MSELoss()


def test_caches_that_are_not_saved_may_grow() -> None:
    assert len(Run(Caches()).to(6)) == 6


def wrapped(make: Callable[[], nn.Module]) -> type[Small]:
    class Wrapped(Small):
        def model(self, params: Any) -> nn.Module:
            return make()

    return Wrapped


def normed() -> nn.Module:
    model = Net()
    parametrizations.weight_norm(model.head)
    parametrizations.spectral_norm(model.body[0])
    return model


CLEAN = {
    "a compiled model": lambda: torch.compile(Net(), backend="eager"),
    "weight norm and spectral norm": normed,
}


@pytest.mark.parametrize("what", CLEAN)
def test_clean_models_are_not_accused(what: str) -> None:
    assert len(Run(wrapped(CLEAN[what])()).to(4)) == 4


def test_a_head_that_is_exchanged_in_both_places_is_no_other_structure() -> None:
    """The optimizer holds the new one in place of the old: what is saved has the same names and shapes."""

    def exchange(model: Any) -> None:
        old, new = model.head, nn.Linear(8, 2)
        group = model.held[0].param_groups[0]
        swap = dict(zip(map(id, old.parameters()), new.parameters(), strict=True))
        group["params"] = [swap.get(id(p), p) for p in group["params"]]
        model.head = new

    assert len(Run(at_8(exchange)()).to(9)) == 9


def test_with_several_ranks_what_is_frozen_stays_so() -> None:
    """Gradients are summed by what it was when the model was wrapped: nothing else would be the same on all ranks."""
    run = Run()
    structure = Structure(run.live.model, run.live.optimizer, run.built.modes, world=2)
    structure.require(3)
    run.live.model.head.requires_grad_(False)
    with pytest.raises(GateError, match=r"update 4: requires_grad of head.bias, head.weight is another one"):
        structure.require(4)


# --- the mode -----------------------------------------------------------------------------------------------


class EndsInEval(Small):
    def model(self, params: Any) -> nn.Module:
        model = Net()
        model.eval()
        return model


class BodyInEval(Small):
    def model(self, params: Any) -> nn.Module:
        model = Net()
        model.body.eval()
        return model


class KeepsNorms(Net):
    """Overrides train() as models with frozen statistics do."""

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.body[1].eval()
        return self


class FrozenNorms(Small):
    def model(self, params: Any) -> nn.Module:
        return KeepsNorms()


def modes(run: Run) -> dict[str, bool]:
    return {name: module.training for name, module in run.live.model.named_modules()}


@pytest.mark.parametrize(("recipe", "named"), [(EndsInEval, "the model"), (BodyInEval, "body")])
def test_training_mode_is_set_and_what_it_changes_is_named(recipe: type[Small], named: str) -> None:
    """FAULT-B18: trained in evaluation mode to the end, dropout off, and nothing was said."""
    run = Run(recipe())
    assert all(modes(run).values())
    assert run.built.said == (
        f"model() left {named} in evaluation mode, and training mode is set; run.evaluating names what is to stay",
    )
    assert len(run.to(2)) == 2


def test_a_part_that_is_declared_stays_in_evaluation_mode() -> None:
    run = Run(BodyInEval(), evaluating=("body",))
    assert {name for name, mode in modes(run).items() if not mode} == {
        f"body{n}" for n in ("", ".0", ".1", ".2", ".3")
    }
    assert run.built.said == ()
    before = run.live.model.body[1].running_mean.clone()
    run.to(3)
    assert run.live.model.body[1].running_mean.equal(before)


def test_a_part_that_the_model_has_not_is_refused_by_name() -> None:
    with pytest.raises(GateError, match="the model has no module encoder") as refusal:
        Run(evaluating=("encoder",))
    assert refusal.value.field == "run.evaluating" and refusal.value.rule == "names of modules: body, head"


def test_a_model_that_keeps_parts_in_evaluation_mode_by_itself_is_fine() -> None:
    run = Run(FrozenNorms())
    assert not modes(run)["body.1"] and modes(run)["body"] and run.built.said == ()
    assert len(run.to(3)) == 3


def leaves_eval(part: str) -> type[Small]:
    class Leaves(Small):
        def at(self, update: int, model: Any) -> None:
            if update == 3:
                model.get_submodule(part).eval()

    return Leaves


@pytest.mark.parametrize(
    ("part", "named"), [("", "the model, body, body.0 and 4 more are"), ("body.2", "body.2 is")]
)
def test_losses_that_leave_evaluation_mode_are_refused_at_that_update(part: str, named: str) -> None:
    run = Run(leaves_eval(part)())
    run.to(2)
    with pytest.raises(
        GateError, match=rf"update 3: after losses\(\), {named} in evaluation mode"
    ) as refusal:
        run.to(3)
    assert "run.evaluating" in (refusal.value.remedy or "")


def test_a_mode_that_something_else_changed_is_found_before_the_forward_pass() -> None:
    run = Run()
    run.to(1)
    run.live.model.body.eval()
    with pytest.raises(
        GateError, match=r"update 2: before the forward pass, body, body.0, body.1 and 2 more are in"
    ):
        run.to(2)


def test_a_frozen_copy_is_no_reference() -> None:
    """The modes of update 0 are those of the build, not those that the first update happens to find."""
    run = Run()
    run.live.model.head.eval()
    again = copy.copy(run.built)
    structure = Structure(again.live.model, again.live.optimizer, again.modes, world=1)
    with pytest.raises(GateError, match="head is in evaluation mode"):
        structure.require_modes(1, "before the forward pass")
