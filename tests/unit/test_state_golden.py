"""The bytes of a checkpoint, written down: those of now, and those of the first format, which are still read.

The manifest changed once, with the second format: the optimizer's state has the names of its parameters in place of
their numbers, `state.json` says what is frozen, and both say `"format":2`. Weights, moments, counters and generators
are the same bits in both. The digests hold for the torch of `constraints.txt`: another one may keep other settings in a
group.

FAULT-A11 FAULT-A18
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from fixedstate import Recipe, fixed_live, numbers

from raykit.errors import GateError
from raykit.train.base import _by_name
from raykit.train.optimizer_state import named_state
from raykit.train.state import FIRST, Capture, Live, hold, read_state, restore
from raykit.train.tensors import join, read_tensors

SAME = {
    "model.safetensors": "3ff692cf90410834f5f469f46114c135e95e8461d5b1f4fcf6435c4db7f389ac",
    "state.safetensors": "a5354106edab151244f393e6d98d1df1056d3bb050244e65117709b8ff401795",
    "rng-00000.safetensors": "a96e4a27f020e6dab3ca687c0e26b65e6791ff9179d42c5f12594c22687c2150",
}
NOW = {
    **SAME,
    "optimizer.safetensors": "26c1179c3e2852aed234bb75e40fcfe905171c0167cd8c7f93c6ca1ffb031cd3",
    "state.json": "29d443af895856f62ee7dbaa552ef508b4f1f60c451d56952c6ded5ba767862b",
}
BEFORE = {
    **SAME,
    "optimizer.safetensors": "0f39ec73d87ea83a25dfd4eb658a1e863f95de68c73d91b4f66793790edc39c5",
    "state.json": "2eaa4a1107ceade1a7e922eb4da0f6cc90f140a18a32ffff1914a820b5fa5528",
}
"""Of the revision before the second format, from the same state."""


def held(live: Live, format: int = 2) -> dict[str, bytes]:
    capture = Capture(rank=0, pin=False)
    capture.take(live, format=format)
    return capture.held()


def digests(live: Live, format: int = 2) -> dict[str, str]:
    capture = Capture(rank=0, pin=False)
    capture.take(live, format=format)
    return capture.digests()


def other() -> Live:
    """The same objects with other values."""
    live = fixed_live()
    for parameter in live.model.parameters():
        parameter.data.fill_(7.0)
        live.optimizer.state[parameter]["exp_avg"].fill_(7.0)
    live.recipe = Recipe()
    return live


@pytest.mark.parametrize(("format", "expected"), [(2, NOW), (FIRST, BEFORE)], ids=["now", "before"])
def test_the_bytes_of_a_checkpoint_are_those_that_are_written_down(
    format: int, expected: dict[str, str]
) -> None:
    assert digests(fixed_live(), format) == expected


@pytest.mark.parametrize("format", [FIRST, 2])
def test_a_checkpoint_of_either_format_is_restored_to_the_bit(format: int) -> None:
    live = other()
    restore(live, held(fixed_live(), format), rank=0)
    assert digests(live, format) == (BEFORE if format == FIRST else NOW)
    assert digests(live) == NOW, "and saved again it is what a run of today would have saved"


def test_weights_moments_and_generators_are_the_same_bits_in_both_formats() -> None:
    before, now = held(fixed_live(), FIRST), held(fixed_live())
    assert {name for name in now if before[name] == now[name]} == {*SAME}
    saved = join(*read_tensors(before["optimizer.safetensors"], "before"))
    named = join(*read_tensors(now["optimizer.safetensors"], "now"))
    converted = _by_name(named["param_groups"], saved, what="converted")
    assert converted.keys() == named["state"].keys() and len(converted) == 5
    for name, moments in converted.items():
        for key, value in moments.items():
            assert value.dtype == named["state"][name][key].dtype
            assert value.numpy().tobytes() == named["state"][name][key].numpy().tobytes(), (name, key)
    counters, named_counters = read_state(before), read_state(now)
    assert named_counters.pop("frozen") == []
    for tree in (counters, named_counters):
        assert tree["recipe"].pop("ema").tolist() == [0.0, 1.0, 2.0]
    assert counters == named_counters


def test_the_file_says_the_name_of_every_parameter_and_of_its_moments() -> None:
    tree, tensors = read_tensors(held(fixed_live())["optimizer.safetensors"], "now")
    assert tree["format"] == json.loads(held(fixed_live())["state.json"])["format"] == 2
    assert [group["params"] for group in tree["param_groups"]] == [
        ["0.bias", "1.weight", "1.bias"],
        ["0.weight", "2.weight"],
    ]
    assert tensors["optimizer.state.2.weight.exp_avg"].equal(numbers(1, 2, start=140))


# --- another order in the next process ----------------------------------------------------------------------


def shuffled(live: Live) -> Live:
    """The same model with an optimizer whose groups, and the parameters in them, come in another order."""
    groups = [
        {"params": [*reversed(group["params"])], "weight_decay": 0.5} for group in live.optimizer.param_groups
    ]
    optimizer = torch.optim.AdamW(groups[::-1], lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda n: 1.0, lambda n: 0.5])
    return Live(model=live.model, optimizer=optimizer, scheduler=scheduler, recipe=Recipe())


def test_groups_in_another_order_take_their_own_moments_and_settings() -> None:
    """Right: state by name; the order that the run began with is put back, so that its rows stay as they are."""
    saved = fixed_live()
    schedule = torch.optim.lr_scheduler.LambdaLR(saved.optimizer, [lambda n: 0.5, lambda n: 1.0])
    saved.scheduler = schedule
    saved.optimizer.step()
    schedule.step()
    files = held(saved)
    live = shuffled(fixed_live())
    restore(live, files, rank=0)
    assert digests(live) == digests(saved)
    assert named_state(live.model, live.optimizer)["param_groups"][0]["params"][0] == "0.bias"
    assert [group["weight_decay"] for group in live.optimizer.param_groups] == [0.0, 0.125]
    for each in (saved, live):
        for parameter in each.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        each.optimizer.step()
        each.scheduler.step()
    assert digests(live) == digests(saved), "and they go on alike"


def test_a_group_that_was_added_is_added_again() -> None:
    saved, live = fixed_live(), fixed_live()
    for each in (saved, live):
        each.optimizer.param_groups.pop()
    weights = [saved.model[0].weight, saved.model[2].weight]
    saved.optimizer.add_param_group({"params": weights, "lr": 0.25, "weight_decay": 0.125})
    restore(live, held(saved), rank=0)
    assert digests(live) == digests(saved)
    assert [group["lr"] for group in live.optimizer.param_groups] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (
            lambda m: [{"params": [*m.parameters()]}],
            "0.bias, 1.bias, 1.weight is in a group of other parameters",
        ),
        (
            lambda m: [
                {"params": [m[0].bias, *m[1].parameters()]},
                {"params": [m[0].weight]},
                {"params": [m[2].weight]},
            ],
            "0.weight, 2.weight is in a group of other parameters",
        ),
    ],
    ids=["one group", "three groups"],
)
def test_other_groups_are_refused_by_name(groups: Any, says: str) -> None:
    live = fixed_live()
    files = held(live)
    live.optimizer = torch.optim.AdamW(groups(live.model), lr=0.5)
    with pytest.raises(GateError, match=says) as refusal:
        restore(live, files, rank=0)
    assert refusal.value.remedy


def test_what_an_optimizer_keeps_beside_torchs_own_comes_back() -> None:
    class Slow(torch.optim.SGD):
        slow = 1.0

        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "slow": self.slow}

        def load_state_dict(self, state: Any) -> None:
            self.slow = state["slow"]
            super().load_state_dict({key: state[key] for key in ("state", "param_groups")})

    one, other = fixed_live(), fixed_live()
    for live in (one, other):
        live.optimizer, live.scheduler = Slow(live.model.parameters(), lr=0.1, momentum=0.9), None
    one.optimizer.slow = 0.25  # type: ignore[attr-defined]
    one.optimizer.state["shared"] = {"calls": 3}  # type: ignore[index]
    restore(other, hold(one, rank=0), rank=0)
    assert (other.optimizer.slow, other.optimizer.state["shared"]) == (0.25, {"calls": 3})  # type: ignore[attr-defined,index]
    assert hold(other, rank=0) == hold(one, rank=0)
