"""The user's side: what a recipe is, and how it is asked.

A recipe is a plain class. Required: `model`, `optimizer`, `dataset`, `losses`. Optional: `scheduler`, `collate`, and
`state_dict` with `load_state_dict` for state of its own; for what is examined, `fields`, `evaluate`, `embed`,
`classify`, `text`, `losses_given` and `panels`; for synthetic rows, `generate`, `keep`, `quality`, `picture` and
`normalization`. `Params`, a dataclass, gives the plan's `params` their names, types and defaults.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from raykit.errors import GateError, PlanError, RaykitError
from raykit.qc.possible import NATS, require_term


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LossTerm:
    """One term of the loss, and the scale that says what its value means.

    `value` is a scalar, the mean over `elements`. Exactly one of three says what no skill scores:
    `target` (any shape: its mean square is what predicting zero scores, for squared errors), `reference` (that
    number itself, at least 0: ln C for a cross-entropy over C classes), or `no_reference` (why there is none).
    `elements` is the number of elements averaged over; it may be left out where `target` is given. 0 says that
    there is nothing to score here, whatever the value is.
    `relates_rows` says that the value is no mean over rows, because it compares the rows of a batch with each
    other: such a term is examined in batches of one size, and any other one row by row.

    Raises:
        PlanError: not exactly one scale, no number of elements, or something that is not one number.
    """

    value: torch.Tensor
    weight: float = 1.0
    target: torch.Tensor | None = None
    reference: float | None = None
    no_reference: str | None = None
    elements: int | None = None
    relates_rows: bool = False

    def __post_init__(self) -> None:
        scales = (self.target is not None) + (self.reference is not None) + bool(self.no_reference)
        if scales != 1:
            raise PlanError(
                "a loss term says how its value is scaled in exactly one way",
                field="LossTerm",
                rule="one of target=, reference= (what no skill scores) or no_reference= (why there is none)",
            )
        if self.target is None and self.elements is None:
            raise PlanError(
                "a loss term without a target needs its number of elements", field="LossTerm.elements"
            )
        self._require_numbers()

    def _require_numbers(self) -> None:
        value: Any = self.value
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            raise PlanError(
                "the value of a loss term is not one number",
                field="LossTerm.value",
                value=tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__,
                rule="a tensor without dimensions: the mean over its elements",
            )
        for what, given in (("value", value), ("target", self.target)):
            if given is not None and given.is_complex():
                raise PlanError(
                    f"the {what} of a loss term has an imaginary part",
                    field=f"LossTerm.{what}",
                    value=str(given.dtype),
                    rule="real numbers",
                    remedy="take .abs() or .real of the value, and torch.view_as_real() of the target",
                )
        numbers: dict[str, Any] = {
            "weight": self.weight,
            "reference": 0.0 if self.reference is None else self.reference,
        }
        for name, number in numbers.items():
            if not (isinstance(number, int | float) and math.isfinite(number)):
                raise PlanError(
                    f"the {name} of a loss term is not a finite number",
                    field=f"LossTerm.{name}",
                    value=str(number),
                    rule="a Python float",
                )
        if self.reference is not None and self.reference < 0.0:
            raise PlanError(
                "what no skill scores is below zero",
                field="LossTerm.reference",
                value=self.reference,
                rule="at least 0, so that a ratio means something",
                remedy='no_reference="..." where no skill has no such score',
            )
        elements: Any = self.elements
        if elements is not None and not (isinstance(elements, int) and elements >= 0):
            raise PlanError(
                "a loss term is a mean over a number of elements",
                field="LossTerm.elements",
                value=str(elements),
                rule="a Python int, at least 0: with 0 there is nothing to score",
            )

    def count(self) -> int:
        """The number of elements that the value is a mean over."""
        if self.elements is not None:
            return self.elements
        assert self.target is not None
        return self.target.numel()

    def scale(self) -> torch.Tensor | float:
        """The target's mean square, the reference, or NaN where there is none."""
        if self.target is not None:
            # The very sums of a squared error against zero, so that no skill is exactly 1; and a number at once where
            # that waits for nothing, since this is done at every update.
            square = self.target.detach().float().square().mean()
            return square.item() if square.is_cpu else square
        return float("nan") if self.reference is None else self.reference

    def numbers(self, name: str) -> tuple[float, int, float]:
        """(value, elements, scale) as numbers, of the term of that name; all zero where there is nothing to score.

        Raises:
            GateError: the value or the scale cannot be.
        """
        count = self.count()
        if not count:
            return 0.0, 0, 0.0
        value, scale = float(self.value.detach()), float(self.scale())
        if self.target is not None:
            whole = not math.isinf(scale) or bool(self.target.isfinite().all())
            require_term(name, value, scale if whole else math.nan)
        return value, count, scale


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A latent or parameter field of one batch: the first axis counts examples. `space="log"` for positive ones."""

    value: torch.Tensor
    space: Literal["linear", "log"] = "linear"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One picture at its true aspect and full extent: [height, width] grey, or [height, width, 3].

    A leading axis of 1, for the one example of the batch, is let through. `low` is drawn black and `high` white.

    Raises:
        GateError: it has another shape, or no range.
    """

    value: torch.Tensor
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        value: Any = self.value
        _require(isinstance(value, torch.Tensor), "panels", "a picture that is no tensor", "a tensor")
        shape = self.pixels().shape
        fits = len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)
        _require(
            fits and 0 not in shape,
            "panels",
            f"a picture of shape {list(value.shape)}",
            "[height, width], or [height, width, 3] with the colours last, of one example",
        )
        _require(
            math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high,
            "panels",
            f"a picture from {self.low} to {self.high}",
            "low below high, both finite",
        )

    def pixels(self) -> torch.Tensor:
        """The picture without the axis of its batch."""
        value = self.value
        batched = value.dim() > 2 and value.shape[0] == 1 and (value.dim() == 4 or value.shape[2] != 3)
        return value[0] if batched else value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """The probability of each class, [examples, classes], and the class that each example has, [examples].

    Raises:
        GateError: they have other shapes, are no probabilities, or a label is no class.
    """

    probabilities: torch.Tensor
    label: torch.Tensor

    def __post_init__(self) -> None:
        given: Any = (self.probabilities, self.label)
        _require(
            all(isinstance(each, torch.Tensor) for each in given)
            and given[0].dim() == 2
            and given[0].shape[1] >= 2
            and given[1].shape == given[0].shape[:1],
            "classify",
            "probabilities and labels in another shape",
            "probabilities [examples, classes] and label [examples], as tensors",
        )
        _require(
            self.probabilities.is_floating_point(),
            "classify",
            f"probabilities of type {self.probabilities.dtype}",
            "floating-point numbers: a softmax of the logits",
        )
        label = self.label
        whole = not (label.is_floating_point() or label.is_complex() or label.dtype == torch.bool)
        _require(
            whole and bool(((label >= 0) & (label < self.probabilities.shape[1])).all()),
            "classify",
            "a label that is no class",
            f"whole numbers from 0 to {self.probabilities.shape[1] - 1}",
        )
        found = self.probabilities.detach().double()
        beyond = (found < -ROUNDING) | (found > 1 + ROUNDING)
        wrong = (beyond | ((found.sum(dim=1) - 1).abs() > ROUNDING)[:, None]) & found.isfinite()
        _require(
            not bool(wrong.any()),
            "classify",
            "numbers that are no probabilities",
            "at least 0, and 1 in sum over the classes: a softmax of the logits",
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The negative log-likelihood in nats of each example's whole text, [examples], and the bytes of that text.

    Raises:
        GateError: they have other shapes or types.
    """

    nats: torch.Tensor
    content: Sequence[bytes]

    def __post_init__(self) -> None:
        nats: Any = self.nats
        _require(
            isinstance(nats, torch.Tensor) and nats.dim() == 1 and len(nats) == len(self.content),
            "text",
            "nats in another shape",
            "a tensor with one number per example, and as many texts",
        )
        _require(
            nats.is_floating_point() and not bool((nats.detach() < -ROUNDING).any()),
            "text",
            "nats below zero" if nats.is_floating_point() else f"nats of type {nats.dtype}",
            NATS,
        )
        _require(
            all(isinstance(each, bytes) for each in self.content),
            "text",
            "content that is no bytes",
            "the text of each example, encoded",
        )


ROUNDING = 0.01
"""How far the sum of probabilities may lie from 1, and a sum of nats below 0: those of bfloat16 have two to three
digits."""


def _require(holds: bool, method: str, what: str, rule: str) -> None:
    if not holds:
        raise GateError(f"the recipe's {method}() gives {what}", field=f"recipe.{method}", rule=rule)


@runtime_checkable
class Recipe(Protocol):
    """What raykit asks of a recipe. `model` passed to `losses` is to be called, not taken apart."""

    def model(self, params: Any) -> nn.Module: ...

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer: ...

    def dataset(self, source: Any, params: Any) -> Any: ...

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, LossTerm]: ...


@contextlib.contextmanager
def asking(
    what: str, *, field: str | None = None, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Run a part of the recipe that is asked before anything starts; its own bug is then an answer.

    What is `expected` goes through as it is.

    Raises:
        PlanError: the recipe raised something; the message has its file and line.
    """
    try:
        yield
    except RaykitError:
        raise
    except expected:
        raise
    except (
        Exception
    ) as error:  # anything a recipe raises is about the recipe, and belongs to the plan's findings
        frame = _frame_of(error)
        raise PlanError(
            f"{what} raised {type(error).__name__}: {str(error)[:300]}",
            field=field or what,
            rule=f"see {Path(frame.filename).name}, line {frame.lineno}: {frame.line or ''}".strip(),
        ) from error


def _frame_of(error: BaseException) -> traceback.FrameSummary:
    """Where the recipe stood when it was raised: in its own code, rather than in a library that it called."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in Path(frame.filename).parts]
    return (own or frames)[-1]
