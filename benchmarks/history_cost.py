"""What history adds to an update on the training thread, with ten loss terms.

    python -m benchmarks.history_cost

The same small updates are done by raykit's own `Stepper` with a history writer, and by a loop that keeps no history,
in blocks that take turns, on two copies of one model. Both sum the recipe's terms, seed the generators, clip and
step; the plain one reads its loss as a number. What is left of the difference is history: reading ten terms and
their scales, agreeing on them, handing over the figures. The writer thread makes rows and segments meanwhile.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from benchmarks.figures import Figure, main
from benchmarks.job import Job
from benchmarks.store import opened_attempt
from raykit.data import randomness
from raykit.data.order import Order
from raykit.plan import Plan, load_plan
from raykit.store.local import LocalStore
from raykit.train import rng
from raykit.train.build import build
from raykit.train.gang import alone
from raykit.train.loop import row_maker
from raykit.train.recipe import LossTerm
from raykit.train.rows import Figures, Rows
from raykit.train.step import Asked, Stepper

TERMS = tuple(f"term{i}" for i in range(10))
ROUNDS = 3
BLOCKS = 100
BLOCK = 50
SETTLES = 10
"""The first updates of a block, which bring its code back into the caches, do not count."""
AT_MOST_US = 20.0


class TenTerms:
    """Ten terms of one small layer. Their scale is a number, or the mean square of a target each."""

    def __init__(self, *, targets: bool) -> None:
        self._targets = targets

    def model(self, params: Any) -> nn.Module:
        return nn.Linear(16, len(TERMS))

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e-3)

    def losses(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, LossTerm]:
        x_BD, y_TB = batch
        return {
            name: self._term((out_B - y_B).square().mean(), y_B)
            for name, out_B, y_B in zip(TERMS, model(x_BD).T, y_TB, strict=True)
        }

    def _term(self, value: torch.Tensor, y_B: torch.Tensor) -> LossTerm:
        if self._targets:
            return LossTerm(value=value, weight=0.1, target=y_B)
        return LossTerm(value=value, weight=0.1, reference=1.0, elements=64)


def measure() -> Sequence[Figure]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        plan = load_plan(
            Job(params={}, batch=64, updates=10, checkpoint_every=10).plan().encode(), where="plan"
        )
        figures = []
        for targets, scale in ((False, "a number"), (True, "a target of 64")):
            found = [_round(Path(folder, f"{targets}-{i}"), plan, targets) for i in range(ROUNDS)]
            figures += [
                Figure(
                    what=f"training thread, ten terms, scale: {scale}",
                    unit="us",
                    values=[training_us for training_us, _ in found],
                    at_most=AT_MOST_US,
                ),
                Figure(
                    what="writer thread, one row of ten terms",
                    unit="us",
                    values=[writer_us for _, writer_us in found],
                ),
            ]
        return figures


def _round(folder: Path, plan: Plan, targets: bool) -> tuple[float, float]:
    """Microseconds that history adds to an update on the training thread, and that a row costs the writer."""
    store = LocalStore(folder)
    log, stamp = opened_attempt(store, "history-cost", "main")
    make_row = row_maker(plan, Order(4096, 1), None, stamp.attempt)
    rows = Rows(store, log, stamp, make_row, flush_s=plan.run.flush_s, hold_s=60.0)
    with_history, plain = _raykit_updates(plan, targets, rows), _plain_updates(plan, targets)
    added = [_block_s(with_history) - _block_s(plain) for _ in range(BLOCKS)]
    figures = next(with_history)[1]
    rows.close(timeout_s=60.0)
    rows.check()
    writing = [_timed(lambda: make_row(figures).to_bytes()) for _ in range(200)]
    return 1e6 * statistics.median(added), 1e6 * statistics.median(writing)


def _block_s(updates: Iterator[tuple[float, Any]]) -> float:
    """The median update of one block."""
    taken = [taken_s for taken_s, _ in itertools.islice(updates, BLOCK)]
    return statistics.median(taken[SETTLES:])


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(64, 16), torch.randn(len(TERMS), 64)


def _raykit_updates(plan: Plan, targets: bool, rows: Rows) -> Iterator[tuple[float, Figures]]:
    recipe = TenTerms(targets=targets)
    stepper = Stepper(plan, recipe, build(plan, recipe, None, alone()), alone())
    micro_batches, go_on = itertools.repeat(_batch()), Asked()
    for update in itertools.count(1):
        start = time.perf_counter()
        figures, _ = stepper.update(update, micro_batches, go_on, start)
        rows.add(figures)
        rows.check()
        assert not figures.nonfinite
        yield time.perf_counter() - start, figures


def _plain_updates(plan: Plan, targets: bool) -> Iterator[tuple[float, float]]:
    recipe = TenTerms(targets=targets)
    live = build(plan, recipe, None, alone()).live
    parameters, batch = list(live.model.parameters()), _batch()
    for update in itertools.count(1):
        start = time.perf_counter()
        live.optimizer.zero_grad(set_to_none=True)
        rng.seed(randomness.update(plan.run.seed, update, 0, 0))
        loss = reduce(add, [term.value * term.weight for term in recipe.losses(live.model, batch).values()])
        loss.backward()
        clip_grad_norm_(parameters, plan.run.clip)
        live.optimizer.step()
        number = loss.item()
        yield time.perf_counter() - start, number


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main(measure))
