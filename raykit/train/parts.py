"""What one rank trains with, made from its inputs: live objects, a restored checkpoint, batches, rows of figures.

An attempt and its replay both take everything from here, so that they cannot differ in how it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from raykit.data.order import Order
from raykit.errors import GateError
from raykit.records import Exactness, Row
from raykit.store.base import ObjectStore
from raykit.store.commit import Good, read_file
from raykit.train.build import Built, build, wrap
from raykit.train.gang import Gang
from raykit.train.inputs import Inputs
from raykit.train.loader import Keyed, train_loader
from raykit.train.loop import row_maker
from raykit.train.recipe import Recipe
from raykit.train.rows import Figures
from raykit.train.state import Capture, needed_files, restore, unequal


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a rank needs to train, but where it begins and what becomes of it."""

    store: ObjectStore
    inputs: Inputs
    gang: Gang
    order: Order
    keyed: Keyed
    """The training split, each sample with its own seed."""

    @staticmethod
    def of(store: ObjectStore, inputs: Inputs, gang: Gang) -> Parts:
        """The parts of these inputs."""
        order = Order(inputs.membership.rows("train"), inputs.plan.run.seed)
        return Parts(store, inputs, gang, order, inputs.keyed("train"))

    def build(self, recipe: Recipe) -> Built:
        """Everything anew, from the plan's seed.

        Raises:
            GateError: the recipe gives something that is not a module or an optimizer.
        """
        return build(self.inputs.plan, recipe, self.inputs.params, self.gang)

    def restore(self, built: Built, good: Good, capture: Capture, exactness: Exactness) -> None:
        """Put the checkpoint back and prove that what is live now is what was stored.

        Raises:
            GateError: it is not, though nothing that was compared explains it.
        """
        files = {
            file.name: read_file(self.store, good.commit, file)
            for file in needed_files(good.manifest, self.gang.rank)
        }
        flags = [p.requires_grad for p in built.live.model.parameters()]
        restore(built.live, files, rank=self.gang.rank)
        if flags != [p.requires_grad for p in built.live.model.parameters()]:
            built.wrapped = wrap(built.live.model, self.gang)  # it sums the gradients of what trains now
        wrong = unequal(capture, built.live, good.manifest, files, rank=self.gang.rank)
        if exactness in ("exact", "state-exact") and self.gang.any(bool(wrong)):
            raise GateError(
                f"after the restore, {', '.join(wrong) or 'a file of another rank'} is not what was saved",
                rule="restored state is equal to the bit",
                remedy="give the recipe a state_dict() and load_state_dict() for state of its own",
            )

    def micro_batches(
        self, after: int, *, last: int | None = None, loader_workers: int | None = None
    ) -> Iterator[Any]:
        """This rank's micro-batches of updates `after` + 1 to `last`, or to the plan's end."""
        return iter(self.loader(after, last=last, loader_workers=loader_workers))

    def loader(
        self, after: int, *, last: int | None = None, loader_workers: int | None = None
    ) -> DataLoader[Any]:
        """What gives them."""
        run = self.inputs.plan.run
        return train_loader(
            self.keyed,
            self.order,
            batch=run.batch,
            world=self.gang.world,
            rank=self.gang.rank,
            accumulate=run.accumulate,
            after=after,
            last=run.updates if last is None else last,
            loader_workers=run.loader_workers if loader_workers is None else loader_workers,
            collate=getattr(self.inputs.recipe, "collate", None),
            pin=self.gang.device.type == "cuda",
        )

    def first_batch(self) -> Any:
        """A fixed batch of this rank, for the monitors."""
        return next(self.micro_batches(0, last=1, loader_workers=0))

    def development(self) -> Keyed | None:
        """The development split; None if there is none."""
        return self.inputs.keyed("development") if "development" in self.inputs.roles() else None

    def row_maker(self, attempt: int) -> Callable[[Figures], Row]:
        """What makes a row of the figures of an update."""
        members = self.inputs.members("train")
        column = getattr(self.inputs.dataset, "sources", None)
        sources = None if column is None else [int(column[int(index)]) for index in members]
        return row_maker(self.inputs.plan, self.order, sources, attempt)
