"""An optimizer's state by the names of the parameters that it belongs to.

torch numbers parameters by their place in the groups. A recipe that makes its groups from a set makes them in
another order in the next process; numbers would then give moments to other parameters, and nobody would notice.
What is saved names each parameter instead, and keeps the order that the groups had: it is put back as well, since the
rows of a run, its schedule and some optimizers' sums depend on it.

    {"format": 2, "param_groups": [{"lr": 0.1, ..., "params": ["body.weight"]}], "state": {"body.weight": {...}}}

`rest` is there where an optimizer keeps more than torch's own do. Files of the first format number parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from raykit.errors import GateError, some_of
from raykit.train.names import names_of, parameters_by_name

FORMAT = 2

Groups = list[dict[str, Any]]


def is_by_name(saved: Mapping[str, Any]) -> bool:
    """Whether a saved state names its parameters; the first format numbers them."""
    return saved.get("format") == FORMAT


def require_in_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Let only an optimizer pass whose parameters are the model's: no checkpoint holds another.

    Raises:
        GateError: it holds another parameter; its place and shape are named.
    """
    names = names_of(model)
    for n, group in enumerate(optimizer.param_groups):
        for i, parameter in enumerate(group["params"]):
            if id(parameter) not in names:
                raise GateError(
                    f"the optimizer holds a parameter that is not in the model: number {i} of its group {n}, "
                    f"{list(parameter.shape)}",
                    field="recipe.optimizer",
                    rule="every parameter that is trained is in the model, whose weights are saved",
                    remedy="make it a part of the module that model() returns, and give model.parameters()",
                )


def unheld(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The parameters that train and that the optimizer does not hold."""
    held = {id(parameter) for parameter in _parameters(optimizer)}
    return [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]


def named_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What the optimizer keeps, by name.

    Raises:
        GateError: it holds a parameter that is not the model's, or its state_dict is not torch's.
    """
    require_in_model(model, optimizer)
    packed = optimizer.state_dict()
    groups: Any = packed.get("param_groups")
    state: Any = packed.get("state")
    live = named_groups(model, optimizer)
    if not isinstance(state, Mapping) or not _fits(groups, live):
        raise GateError(
            "the optimizer's state_dict() is not made as torch's own: state and param_groups, group by group",
            field="recipe.optimizer",
            rule="what torch.optim.Optimizer.state_dict gives",
        )
    names = _numbered(groups, live)
    own = {names[key]: _sorted(kept) for key, kept in state.items() if key in names}
    rest = {key: value for key, value in packed.items() if key not in ("state", "param_groups")}
    if others := {key: value for key, value in state.items() if key not in names}:
        rest["state"] = others
    saved: dict[str, Any] = {
        "format": FORMAT,
        "param_groups": [
            _sorted({**_options(group), "params": names}) for group, names in zip(groups, live, strict=True)
        ],
        "state": _sorted(own),
    }
    return {**saved, "rest": rest} if rest else saved


def named_groups(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    """The names of the parameters of each group, as they stand in it."""
    names = names_of(model)
    return [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]


def restore_named(model: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> list[int]:
    """Put a saved state back. The live groups are first brought into the order that was saved; one that is not
    there yet is added.

    Returns the place that each of the groups had before; a new one has none.

    Raises:
        GateError: the groups are not of the same parameters.
    """
    places = _arrange(model, optimizer, saved["param_groups"])
    numbers = {name: n for n, name in enumerate(name for g in saved["param_groups"] for name in g["params"])}
    own = _sorted({numbers[name]: kept for name, kept in saved["state"].items()})
    rest = dict(saved.get("rest", {}))
    groups = [
        {**group, "params": [numbers[name] for name in group["params"]], **_param_names(live)}
        for group, live in zip(saved["param_groups"], optimizer.param_groups, strict=True)
    ]
    packed = {**rest, "state": {**own, **rest.get("state", {})}, "param_groups": groups}
    restore_numbered(optimizer, packed)
    return places


def restore_numbered(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """`load_state_dict`, and then every moment in its own dtype: torch casts them to that of their parameter."""
    optimizer.load_state_dict(saved)
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    parameter_of = dict(zip(indices, _parameters(optimizer), strict=True))
    for index, moments in saved["state"].items():
        if index not in parameter_of:
            continue
        state = optimizer.state[parameter_of[index]]
        for name, was in moments.items():
            now = state.get(name)
            if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != was.dtype:
                state[name] = was.to(now.device)


def in_order(scheduler: Any, places: list[int]) -> None:
    """Bring the functions that a schedule has for each group, which are in no state_dict, into the order of the groups.

    `places` is what `restore_named` returned.
    """
    for each in (scheduler, *getattr(scheduler, "_schedulers", ())):
        made = getattr(each, "lr_lambdas", None)
        if isinstance(made, list) and len(made) == len(places) == len({*places} - {NEW}):
            each.lr_lambdas = [made[place] for place in places]


# --- groups -------------------------------------------------------------------------------------------------

NAMED = 3
"""How many parameters a refusal names."""
NEW = -1
"""The place of a group that was not there."""


def _arrange(model: nn.Module, optimizer: torch.optim.Optimizer, wanted: Groups) -> list[int]:
    """Bring the live groups, and the parameters in them, into the order of `wanted`."""
    by_name = parameters_by_name(model)
    left = list(enumerate({*names} for names in named_groups(model, optimizer)))
    held = {name for _, names in left for name in names}
    places: list[int] = []
    for group in wanted:
        names = {*group["params"]}
        place = next((n for n, each in left if each == names), NEW)
        if place == NEW:
            _require_free(names, held, by_name)
        left = [(n, each) for n, each in left if n != place]
        places.append(place)
    if left:
        raise _other_groups(f"the group of {some_of(sorted(left[0][1]), NAMED)} is not in the checkpoint")
    live = list(optimizer.param_groups)
    for group, place in zip(wanted, places, strict=True):
        parameters = [by_name[name] for name in group["params"]]
        if place == NEW:
            named = any("param_names" in each for each in live)
            given: Any = list(zip(group["params"], parameters, strict=True)) if named else parameters
            optimizer.add_param_group({**_options(group), "params": given})
        else:
            live[place]["params"] = parameters
            if "param_names" in live[place]:
                live[place]["param_names"] = list(group["params"])
    new = iter(optimizer.param_groups[len(live) :])
    optimizer.param_groups[:] = [next(new) if place == NEW else live[place] for place in places]
    return places


def _require_free(names: set[str], held: set[str], by_name: Mapping[str, Any]) -> None:
    """A group that is not there can be added if its parameters are the model's, and in no other group."""
    if missing := names - by_name.keys():
        raise _other_groups(f"{some_of(sorted(missing), NAMED)} is not in the model")
    if taken := names & held:
        raise _other_groups(f"{some_of(sorted(taken), NAMED)} is in a group of other parameters")


def _other_groups(why: str) -> GateError:
    return GateError(
        f"the optimizer's groups are not those that were saved: {why}",
        field="recipe.optimizer",
        rule="the same parameters in the same groups, in any order",
        remedy="make the groups as the run that saved them did",
    )


def _fits(groups: Any, live: list[list[str]]) -> bool:
    return isinstance(groups, list) and [len(group["params"]) for group in groups] == [*map(len, live)]


def _numbered(groups: Groups, live: list[list[str]]) -> dict[Any, str]:
    return {
        number: name
        for group, names in zip(groups, live, strict=True)
        for number, name in zip(group["params"], names, strict=True)
    }


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _param_names(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"param_names": group["param_names"]} if "param_names" in group else {}


def _sorted(items: Any) -> Any:
    """In the order of its keys, which means nothing here."""
    return (
        dict(sorted(items.items())) if isinstance(items, Mapping) and len({*map(type, items)}) == 1 else items
    )


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]
