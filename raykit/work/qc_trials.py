"""Examines the checkpoints of the trials of a search, each with the model and the data of its own setting."""

from __future__ import annotations

from pathlib import Path

from raykit.errors import CorruptError
from raykit.records import Receipt, Request, Roster, Suite
from raykit.store.base import ObjectStore
from raykit.store.plans import read_setting
from raykit.work.again import Elsewhere
from raykit.work.examined import Examined
from raykit.work.qc_places import require_bound, room_of
from raykit.work.qc_unit import Bench


class TrialsBench:
    """Examines the checkpoints of every trial of a search: each with the model and the data of its own setting.

    One setting is open at a time: two sets of data may be more than a worker may hold.
    """

    def __init__(
        self,
        store: ObjectStore,
        experiment: str,
        suite: Suite,
        roster: Roster,
        folder: Path,
        *,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`folder` is private and empty: the frozen code is unpacked there. For `elsewhere` see `Bench`.

        Raises:
            CorruptError: stored bytes do not match their digests.
            GateError: the roster is not the suite's.
            PlanError: the recipe or its params cannot be opened.
            StoreUnavailableError: the store did not answer.
        """
        require_bound("roster", roster.digest, suite.roster)
        self._store = store
        self._experiment = experiment
        self._suite = suite
        self._roster = roster
        self._folder = folder
        self._elsewhere = elsewhere
        self._room = room_of(store, experiment, suite, folder)
        self._run: str | None = None
        self._bench: Bench | None = None

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        """Examine one checkpoint of a trial; see `Bench`.

        Raises:
            CorruptError: stored bytes do not match their digests.
            StoreUnavailableError: the store did not answer.
            GateError: the recipe gives something of another shape, the request is of another suite, the receipt at
                update 0 is not there, or units of the roster have another content than they had.
            PlanError: the recipe's params or data cannot be opened with the trial's setting.
        """
        if self._bench is None or self._run != request.run:
            self._bench, self._run = None, None  # what it held is free before the next one is opened
            self._bench = self._open(request.run)
            self._run = request.run
        return self._bench(request, key, reference)

    def _open(self, run: str) -> Bench:
        setting = read_setting(self._store, self._experiment, run)
        if setting is None:
            raise CorruptError(
                f"{run} has checkpoints, and nothing says which setting they are of", rule="I3"
            )
        return Bench(
            self._store,
            self._experiment,
            self._suite,
            self._roster,
            self._folder,
            room=self._room,
            setting=setting,
            elsewhere=self._elsewhere,
        )
