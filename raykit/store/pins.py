"""Checkpoints that a person keeps for good, said in the log of their experiment."""

from __future__ import annotations

from collections.abc import Sequence

from raykit.pauses import fold_acts
from raykit.records import ExperimentEntry, Pinned, Record
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log


def pin(store: ObjectStore, experiment: str, event: Pinned, *, at: float) -> bool:
    """Keep a checkpoint for good, or let go of it; False if it is so already.

    Raises:
        CorruptError: the log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """

    def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
        kept = event.manifest in fold_acts(entries).pinned
        return [] if kept == event.keep else [event]

    log = Log(store, layout.experiment_log(experiment), ExperimentEntry, by=event.person)
    return log.append(decide, at=at) is not None
