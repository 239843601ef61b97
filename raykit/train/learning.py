"""Whether anything is trained: what one update did to the model, and what is left of it at the end.

A run whose gradients are all zero, whose optimizer holds nothing that has one, or whose learning rate is zero completes
like any other: its checkpoints are those of update 0. A warm-up that begins at zero is none of these: it has gradients,
and a scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from raykit.errors import GateError, some_of
from raykit.qc.possible import require_term
from raykit.train.recipe import LossTerm
from raykit.train.rows import Figures
from raykit.train.state import Live
from raykit.train.tensors import is_broken, read_tensors

MODEL = "model.safetensors"
MAX_NAMED = 8
"""How many tensors a refusal names."""


def require_attached(terms: Mapping[str, LossTerm]) -> None:
    """Refuse a loss that no parameter can change: the main term, or all of them, without a gradient.

    Raises:
        GateError: it is so.
    """
    main = next((name for name, term in terms.items() if term.no_reference is None and term.weight), None)
    if main is not None and terms[main].value.requires_grad:
        return
    if main is None and any(term.value.requires_grad for term in terms.values()):
        return
    what = "no term of the loss has" if main is None else f"the main term, {main}, has no"
    raise GateError(
        f"{what} {'a ' if main is None else ''}gradient: training cannot change it",
        field="recipe.losses",
        rule="a value that comes of the model's parameters",
        remedy="take .detach(), .item() or torch.no_grad() out of losses(), or set weight=0 where it is only watched",
    )


def idle(live: Live, initial: Mapping[str, bytes], figures: Figures) -> str | None:
    """Why the first update trained nothing, in words; None if it trained, or if that cannot be told yet.

    `initial` is the state before it.

    Raises:
        GateError: a term of it cannot be.
    """
    for name, value, _, _, mean_square, *_ in figures.terms:
        require_term(name, value, mean_square)
    named = {name: p for name, p in live.model.named_parameters() if p.requires_grad}
    if not any(map(_moved_by, named.values())):
        return f"the gradients of all {len(named)} parameters are zero or not there: the loss does not depend on them"
    if figures.skipped or any(_changed(named, initial)):
        return None
    if not any(figures.lr):
        return None if live.scheduler is not None else "the learning rate is 0, and no scheduler raises it"
    if live.optimizer.state:
        return None  # it has begun: one that steps every few updates, or steps too small for one
    return f"no parameter of the model changed, at a learning rate of {max(figures.lr):g}"


def _moved_by(parameter: nn.Parameter) -> bool:
    gradient = parameter.grad
    if gradient is None:
        return False
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(values.any())


def _changed(named: Mapping[str, nn.Parameter], initial: Mapping[str, bytes]) -> Iterator[bool]:
    _, before = read_tensors(initial[MODEL], MODEL)
    return (
        not torch.equal(before[name], parameter.detach().cpu())
        for name, parameter in named.items()
        if name in before
    )


# --- numbers that are none ------------------------------------------------------------------------------------


def require_finite(model: nn.Module, update: int) -> None:
    """Let only weights end a run that are numbers.

    Raises:
        GateError: a parameter is not finite.
    """
    broken = [name for name, p in model.named_parameters() if is_broken(p.detach(), buffer=False)]
    if broken:
        raise GateError(
            f"nothing finite to keep: after update {update}, {some_of(broken, MAX_NAMED)} is not finite",
            field="recipe.optimizer",
            rule="weights that are numbers",
            remedy="raykit checkpoints list shows the last one that is whole; look at what the last updates did",
        )
