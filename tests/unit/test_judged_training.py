"""What training itself scores and trains: a metric has its count, what cannot be is refused, and something is trained.

covers FAULT-B05 FAULT-B07 FAULT-B09 FAULT-B10 FAULT-B11 FAULT-B15 FAULT-B16 FAULT-B17
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from plainrun import TINY
from torch import nn

from raykit.errors import GateError, PlanError
from raykit.plan import Plan, load_plan
from raykit.train import learning, rng
from raykit.train.build import Built, build
from raykit.train.evaluate import Evaluated, evaluate
from raykit.train.gang import Gang, alone
from raykit.train.hidden.walk import Roots
from raykit.train.loader import Keyed
from raykit.train.probes import Bench, World, first_gate
from raykit.train.recipe import LossTerm
from raykit.train.state import Capture, Live, hold
from raykit.train.step import Asked, Stepper

ROWS = 10
TEXT = (TINY / "plan.toml").read_text()
QC = """
[qc]
owner = "ada"
every = 5
roster = { stratum = "third", units = 2 }
fail = { loss = "> 100" }
on_failure = "continue"
shares = "a test"
"""


def plan_of(*, batch: int = 4, qc: bool = False, accumulate: int = 1) -> Plan:
    text = TEXT.replace("batch            = 12", f"batch = {batch}\naccumulate = {accumulate}")
    return load_plan((text + (QC if qc else "")).encode(), where="plan.toml")


class Rows:
    deterministic = True

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), index / ROWS), torch.tensor(float(index))


class Plain:
    """Fits a line; tests put in place of its methods what they are about."""

    lr = 0.1

    def model(self, params: Any) -> nn.Module:
        return nn.Linear(3, 1)

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr)

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, LossTerm]:
        x, y = batch
        return {"fit": LossTerm(value=(model(x)[:, 0] - y).square().mean(), target=y)}


def built(recipe: Any, plan: Plan) -> Built:
    return build(plan, recipe, None, alone())


def scored(recipe: Any, *, gang: Gang | None = None, plan: Plan | None = None, update: int = 5) -> Evaluated:
    plan = plan or plan_of()
    keyed = Keyed(Rows(), np.arange(ROWS), 1)
    return evaluate(plan, recipe, built(recipe, plan), gang or alone(), keyed, update)


def scoring(give: Any) -> Any:
    recipe = Plain()
    recipe.evaluate = lambda model, batch: give(*batch)  # type: ignore[attr-defined]
    return recipe


# --- what an evaluation counts ------------------------------------------------------------------------------


def test_a_metric_that_every_row_has_says_nothing_of_its_count() -> None:
    found = scored(scoring(lambda x, y: {"y": y}))
    assert found.metrics["y"] == pytest.approx(4.5) and found.counts == {}


def test_rows_without_a_number_are_left_out_and_counted() -> None:
    huge = torch.full((4,), 1e308, dtype=torch.float64)
    found = scored(scoring(lambda x, y: {"high": y[y > 6], "none": y[:0], "huge": huge[: len(y)]}))
    assert found.metrics["high"] == pytest.approx(8.0) and found.counts == {"high": 3, "none": 0}
    assert found.metrics["none"] is None and found.metrics["huge"] is None


def test_names_are_those_of_all_batches() -> None:
    found = scored(scoring(lambda x, y: {"late": y} if y[0] >= 8 else {}))
    assert found.metrics["late"] == pytest.approx(8.5) and found.counts == {"late": 2}


def test_names_are_those_of_all_ranks() -> None:
    """As rank 0 sees them, which has met no batch with that name."""

    class Two(Gang):
        def share(self, value: Any = None, *, by: int = 0) -> Any:
            return {**value, "names": [*value["names"], "metric.other", "alone.other"]} if by else value

        def sum(self, values: list[float]) -> list[float]:
            return values if len(values) < 4 else [*values[:-4], 6.0, 3.0, 0.0, 0.0]

    found = scored(Plain(), gang=Two(rank=0, world=2, device=torch.device("cpu")))
    assert found.metrics["other"] == 2.0 and found.counts == {"other": 3}


REFUSED: dict[str, tuple[Any, str]] = {
    "one number a batch": (lambda x, y: {"m": y.mean()[None]}, "once for each batch"),
    "no dimension": (lambda x, y: {"m": y.mean()}, "another shape"),
    "more numbers than rows": (lambda x, y: {"m": x.flatten()}, "another shape"),
    "complex": (lambda x, y: {"m": y + 1j}, "imaginary"),
    "None": (lambda x, y: None, "in place of a dict"),
    "None by name": (lambda x, y: {"m": None}, "another shape"),
    "ratio_median": (lambda x, y: {"ratio_median": y}, "works out itself"),
    "worst.y": (lambda x, y: {"worst.y": y}, "works out itself"),
    "nonfinite": (lambda x, y: {"nonfinite": y}, "works out itself"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_no_number_per_row_is_refused_by_name(how: str) -> None:
    give, says = REFUSED[how]
    with pytest.raises(GateError, match=says) as refused:
        scored(scoring(give))
    assert refused.value.field == "recipe.evaluate" and refused.value.rule


# --- what cannot be -----------------------------------------------------------------------------------------


def losing(term: Any) -> Any:
    recipe = Plain()
    recipe.losses = lambda model, batch: term(model(batch[0])[:, 0], batch[1])  # type: ignore[method-assign]
    return recipe


def squares(sign: float) -> Any:
    return losing(lambda out, y: {"fit": LossTerm(value=sign * (out - y).square().mean(), target=y)})


IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "a squared error below zero": (squares(-1.0), "recipe.losses.fit"),
    "a target that overflows": (
        losing(lambda out, y: {"fit": LossTerm(value=out.mean(), target=1e30 * (y + 1))}),
        "LossTerm.target",
    ),
    "no term": (losing(lambda out, y: {}), "recipe.losses"),
}


@pytest.mark.parametrize("how", IMPOSSIBLE)
def test_what_cannot_be_is_refused_at_the_first_look(how: str) -> None:
    recipe, field = IMPOSSIBLE[how]
    with pytest.raises(GateError) as refused:
        scored(recipe)
    assert refused.value.field == field


def test_a_squared_error_below_zero_never_passes_the_first_gate() -> None:
    with pytest.raises(GateError, match="never below zero"):
        gate(squares(-1.0))


# --- nothing to score ---------------------------------------------------------------------------------------


def masked(out: torch.Tensor, y: torch.Tensor) -> dict[str, LossTerm]:
    there = y < 8  # the last, small batch has none
    value = (out - y)[there].square().mean()
    return {"fit": LossTerm(value=value, reference=20.0, elements=int(there.sum()))}


def test_a_last_batch_with_nothing_to_score_ends_no_evaluation() -> None:
    found = scored(losing(masked))
    assert found.metrics["ratio"] is not None and found.metrics["loss"] is not None
    nothing = losing(lambda out, y: {"fit": LossTerm(value=out[:0].mean(), reference=1.0, elements=0)})
    assert scored(nothing).metrics == {"ratio": None, "ratio.fit": None, "loss": None}


def test_an_update_with_nothing_to_score_is_refused_by_name() -> None:
    recipe = losing(lambda out, y: {"fit": LossTerm(value=out.sum() * 0, reference=1.0, elements=0)})
    with pytest.raises(GateError, match="nothing to score") as refused:
        step(recipe)
    assert refused.value.field == "LossTerm.elements"


@pytest.mark.xfail(strict=True, reason="An objective that is right for unequal batches")
def test_a_weight_that_differs_between_micro_batches_is_weighted_as_the_value_is() -> None:
    recipe = losing(
        lambda out, y: {
            "fit": LossTerm(value=(out - y).square().mean(), reference=1.0 + float(y[0]), elements=len(y))
        }
    )
    figures = step(recipe, plan_of(accumulate=2))
    (_, value, _, _, _, reference, _) = figures.terms[0]
    assert value > 0 and reference == 2.0, "the mean over both: 1 and 3"


# --- something is trained -----------------------------------------------------------------------------------


def batches(plan: Plan) -> Iterator[Any]:
    size = plan.run.batch // plan.run.accumulate
    rows = [Rows()[i % ROWS] for i in range(plan.run.batch * 3)]
    for at in range(0, len(rows), size):
        yield tuple(torch.stack(column) for column in zip(*rows[at : at + size], strict=True))


def step(recipe: Any, plan: Plan | None = None) -> Any:
    plan = plan or plan_of()
    made = built(recipe, plan)
    return Stepper(plan, recipe, made, alone()).update(1, batches(plan), Asked(), 0.0)[0]


def gate(recipe: Any) -> Any:
    plan = plan_of()

    @contextmanager
    def world() -> Iterator[World]:
        made = built(copy.copy(recipe), plan)
        live = made.live
        roots = Roots(
            recipe=live.recipe,
            model=live.model,
            optimizer=live.optimizer,
            scheduler=live.scheduler,
            dataset=Rows(),
            modules={},
        )
        yield World(built=made, micro_batches=lambda after, last: batches(plan), few=None, roots=roots)

    with rng.aside(1):
        initial = hold(built(recipe, plan).live, rank=0)
        return first_gate(Bench(plan=plan, gang=alone(), initial=initial, apart=world), "0" * 64)


class Copied(Plain):
    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(copy.deepcopy(model).parameters(), lr=0.1)


class Still(Plain):
    lr = 0.0


class Silent(Plain):
    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.1)  # whose decay alone changes the weights

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, LossTerm]:
        x, y = batch
        return {"fit": LossTerm(value=(0 * model(x)[:, 0] - y).square().mean(), target=y)}


class WarmsUp(Still):
    lr = 0.1

    def scheduler(self, optimizer: Any, params: Any) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: min(1.0, update / 5))


class EverySecond(Plain):
    """An optimizer that gathers two updates before it steps."""

    class Gathers(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                self.state[p]["sum"] = self.state[p].get("sum", 0) + p.grad

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return self.Gathers(model.parameters(), lr=0.1)


IDLE = {
    "an optimizer over a copy": (Copied, "holds other tensors"),
    "a learning rate of 0": (Still, "learning rate is 0"),
    "an output times 0": (Silent, "gradients of all 2 parameters are zero"),
}


@pytest.mark.parametrize("how", IDLE)
def test_a_run_that_trains_nothing_never_passes_the_first_gate(how: str) -> None:
    kind, says = IDLE[how]
    found = gate(kind())
    assert not found.passed and "nothing is trained" in found.found and says in found.found


@pytest.mark.parametrize("kind", [Plain, WarmsUp, EverySecond])
def test_a_run_that_trains_passes_it(kind: type[Plain]) -> None:
    assert gate(kind()).passed


def test_a_main_term_without_a_gradient_is_refused_by_name() -> None:
    with pytest.raises(GateError, match="main term, fit, has no gradient") as refused:
        step(losing(lambda out, y: {"fit": LossTerm(value=(out.detach() - y).square().mean(), target=y)}))
    assert refused.value.field == "recipe.losses"
    watched = losing(
        lambda out, y: {
            "seen": LossTerm(value=out.detach().mean(), weight=0.0, reference=1.0, elements=1),
            "fit": LossTerm(value=(out - y).square().mean(), target=y),
        }
    )
    assert step(watched).nonfinite == []


def test_weights_that_are_no_numbers_end_no_run() -> None:
    model = nn.Linear(2, 1)
    learning.require_finite(model, 20)
    with torch.no_grad():
        model.bias.fill_(float("nan"))
    with pytest.raises(GateError, match="nothing finite to keep: after update 20, bias is not finite"):
        learning.require_finite(model, 20)


def test_a_save_names_what_is_no_number() -> None:
    """covers FAULT-B12: NaN anywhere, infinity in a parameter; a mask may be infinite."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    capture = Capture(rank=0, pin=False)
    live = Live(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    capture.take(live)
    assert capture.broken() == ()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.inf
        model[1].running_var[1] = torch.nan  # type: ignore[index,operator]
    capture.take(live)
    assert set(capture.broken()) == {"0.weight", "1.running_var"}


# --- rows that are related ----------------------------------------------------------------------------------


def pairs(out: torch.Tensor, y: torch.Tensor) -> dict[str, LossTerm]:
    logits = -(out[:, None] - y[None]).square()
    value = torch.nn.functional.cross_entropy(logits, torch.arange(len(y)))
    return {"pairs": LossTerm(value=value, reference=1.386, elements=len(y))}


def test_a_term_that_relates_rows_is_found_at_update_0_of_a_run_that_is_examined() -> None:
    with pytest.raises(GateError, match="rows at once"):
        scored(losing(pairs), plan=plan_of(qc=True), update=0)
    scored(losing(pairs), update=0)  # nobody examines it row by row
    scored(Plain(), plan=plan_of(qc=True), update=0)


def test_a_reference_below_zero_is_refused() -> None:
    with pytest.raises(PlanError, match="below zero"):
        step(losing(lambda out, y: {"fit": LossTerm(value=out.mean(), reference=-1.0, elements=1)}))
