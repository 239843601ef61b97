"""Golden examples about neither plans nor money: gradients of two examples, and a set that is a little short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from money import digest
from torch import nn

from raykit import LossTerm
from raykit.data.members import compare, describe, load, policy, split, write
from raykit.data.members.membership import Membership, RoleRecord, SplitManifest
from raykit.plan import RowChange
from raykit.reconcile import falls_short, lowest
from raykit.records import Difference
from raykit.review import words
from raykit.testing import MemoryStore
from raykit.train.build import Built
from raykit.train.gang import Gang
from raykit.train.state import Live
from raykit.train.step import Asked, Stepper

# --- GOLD-13 ------------------------------------------------------------------------------------------------

PER_EXAMPLE = (1.0, 3.0)
"""The gradients of the two examples, each alone."""


class Line(nn.Module):
    """One weight; the loss of an example is its gradient times that weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, slopes: torch.Tensor) -> torch.Tensor:
        return self.weight * slopes


class Recipe:
    """`mean` is what a recipe owes; `sum` is the mistake that the example is about."""

    def __init__(self, reduction: str) -> None:
        self.reduction = reduction

    def losses(self, model: nn.Module, batch: torch.Tensor) -> dict[str, LossTerm]:
        value = getattr(model(batch), self.reduction)()
        return {"line": LossTerm(value=value, no_reference="a straight line", elements=len(batch))}


def stepper(reduction: str, *, accumulate: int = 1, batch: int = 2) -> tuple[Stepper, Line]:
    model = Line()
    live = Live(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    run: Any = SimpleNamespace(accumulate=accumulate, batch=batch, seed=1, clip=None)
    built = Built(live=live, wrapped=model, autocast=nullcontext)
    gang = Gang(rank=0, world=1, device=torch.device("cpu"))
    plan: Any = SimpleNamespace(run=run)
    return Stepper(plan, Recipe(reduction), built, gang), model  # type: ignore[arg-type]


def batches(*sizes: int) -> Iterator[torch.Tensor]:
    """Micro-batches of so many of the examples, from the first on."""
    at = 0
    for size in sizes:
        yield torch.tensor([PER_EXAMPLE[(at + i) % 2] for i in range(size)])
        at += size


def gradient(model: Line) -> float:
    assert model.weight.grad is not None
    return float(model.weight.grad)


@pytest.mark.parametrize(("reduction", "one", "two"), [("mean", 1.0, 2.0), ("sum", 1.0, 4.0)])
def test_gold_13_one_and_two_examples_cleared_and_repeated(reduction: str, one: float, two: float) -> None:
    """covers GOLD-13: mean 1 / 2, without clearing 2 / 4; sum 1 / 4, without clearing 2 / 8"""
    for size, expected in ((1, one), (2, two)):
        step, model = stepper(reduction)
        step.accumulate(1, batches(size))
        assert gradient(model) == expected
        step.accumulate(2, batches(size))
        assert gradient(model) == 2 * expected, "nothing clears them between the two backward passes"


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gold_13_an_update_is_a_mean_and_begins_cleared(accumulate: int) -> None:
    """covers GOLD-13: what raykit itself does with both examples is 2, however they are cut, and again 2"""
    step, model = stepper("mean", accumulate=accumulate)
    each = [2 // accumulate] * accumulate
    for update in (1, 2):
        figures, _ = step.update(update, batches(*each), Asked(), 0.0)
        assert (gradient(model), figures.grad_norm) == (2.0, 2.0)


# --- GOLD-20 ------------------------------------------------------------------------------------------------

NAMED, APPROVED = 10_000_000, 9_999_555
"""A corpus is called 10M, and holds so many approved rows."""


def test_gold_20_what_is_called_10m_is_reported_by_its_rows() -> None:
    """covers GOLD-20"""
    role = RoleRecord(
        rows=APPROVED, groups=1, contents=1, strata={"all": APPROVED}, members=digest("m"), sha256=digest("f"),
        size_bytes=1,
    )  # fmt: skip
    manifest = SplitManifest(
        policy=policy({"train": 1.0}, "content", 0), rows=APPROVED, roles={"train": role}, overlaps=()
    )
    corpus = Membership(digest=digest("10M"), manifest=manifest, tables={})
    assert corpus.rows("train") == 9_999_555
    said = corpus.describe("train", rows="approved rows of the corpus 10M")
    assert said == "9,999,555 approved rows of the corpus 10M used for training gradients only"


def test_gold_20_the_shortfall_is_a_count_beside_its_share() -> None:
    """covers GOLD-20: 445, which one decimal alone would hide"""
    short = RowChange(before=NAMED, after=APPROVED, added=0, removed=NAMED - APPROVED, relabelled=0)
    assert short.removed == 445
    assert f"{100 * short.removed / short.before:.5f}" == "0.00445"
    assert "445 of 10,000,000 (0.0%) removed" in words.rows(short)


def test_gold_20_a_refill_is_another_set() -> None:
    """covers GOLD-20: rows that are put in to reach the round number are found, named, and end exactness"""
    store = MemoryStore()

    def rows(count: int) -> Any:
        ids = [f"row-{n:04d}" for n in range(count)]
        return describe(count, ids, None, None, lambda n: digest(ids[n]))

    approved, shares = rows(955), {"train": 0.8, "development": 0.2}
    chosen = policy(shares, "none", 0)
    stored = load(store, "corpus", write(store, "corpus", split(approved, shares, "none", 0), chosen))
    assert compare(stored, approved) is None
    found = compare(stored, rows(1_000))
    assert found is not None
    assert str(found).startswith("955 members stored, 1,000 rows now: 45 added; first: 'row-0955' is added")
    now = Difference(what="split members", was="as stored", now=str(found), allows="inexact")
    assert falls_short(lowest([now]), "order-exact"), "no resume goes on with them"
    assert sum(stored.rows(role) for role in ("train", "development")) == 955, "and the set stays as it was"
