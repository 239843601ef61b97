"""One run of one contender in a process of its own, for `step_time`: when each update began goes to a file.

    python -m benchmarks.contender CONTENDER JOB.json TICKS.json

All contenders train the same model on the same rows with the same optimizer and clipping, one torch thread each,
and read the loss as a Python number at every update.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from benchmarks.bytelm import recipe
from benchmarks.job import Job


def plain(job: Job) -> list[float]:
    """The loop that everyone writes. It saves nothing."""
    lm, params, loader = _parts(job)
    model = lm.model(params)
    optimizer = lm.optimizer(model, params)
    parameters, losses = list(model.parameters()), []
    for batch in _endless(loader, job.updates):
        optimizer.zero_grad(set_to_none=True)
        loss = recipe.loss_of(model, batch)
        loss.backward()
        clip_grad_norm_(parameters, job.clip)
        optimizer.step()
        losses.append(loss.item())
    return recipe.TICKS


def lightning(job: Job) -> list[float]:
    """Lightning with a CSV logger at every step. It saves nothing."""
    import lightning as pl
    from lightning.pytorch.loggers import CSVLogger

    lm, params, loader = _parts(job)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = lm.model(params)

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            loss = recipe.loss_of(self.model, batch)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return lm.optimizer(self.model, params)

    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=job.updates,
            gradient_clip_val=job.clip,
            logger=CSVLogger(folder),
            log_every_n_steps=1,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), loader)
        (metrics,) = Path(folder).rglob("metrics.csv")
        assert len(metrics.read_text().splitlines()) == job.updates + 1
    return recipe.TICKS


def raykit(job: Job) -> list[float]:
    """A raykit attempt: every row of history, asynchronous checkpoints, the directive; evaluated at its ends."""
    from benchmarks.store import frozen_task, run_log
    from raykit.reconcile import fold
    from raykit.store.local import LocalStore
    from raykit.train.directive import Directive
    from raykit.train.gang import alone
    from raykit.train.worker import work

    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        root = Path(folder, "store")
        task = frozen_task(root, job.write(Path(folder, "job")))
        ending = work(task, alone(), Directive())
        state = fold(run_log(LocalStore(root), task.experiment, task.run).refresh())
        assert ending.reason == "completed" and state.recorded() == job.updates
        assert len(state.commits) == 1 + job.updates // job.checkpoint_every
        ticks: list[float] = sys.modules["recipe"].TICKS  # the frozen copy; launch gates ticked there too
        return ticks[-job.updates :]


CONTENDERS: dict[str, Callable[[Job], list[float]]] = {
    "plain": plain,
    "raykit": raykit,
    "lightning": lightning,
}


def _parts(job: Job) -> tuple[recipe.ByteLm, Any, DataLoader[Any]]:
    lm = recipe.ByteLm()
    params = lm.Params(**job.params)
    dataset = lm.dataset(None, params)
    torch.manual_seed(0)
    return lm, params, DataLoader(dataset, batch_size=job.batch, shuffle=True, drop_last=True)


def _endless(loader: DataLoader[Any], updates: int) -> Iterator[Any]:
    while updates > 0:
        for batch in loader:
            yield batch
            updates -= 1
            if updates == 0:
                return


def main(name: str, job: str, ticks: str) -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    found = CONTENDERS[name](Job(**json.loads(Path(job).read_text())))
    Path(ticks).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
