"""What retention could let go of: the checkpoints of a run, against the plan's rule and all that needs them."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from raykit.candidates.retention import KeepRule, Point, Retention, retention
from raykit.errors import CorruptError, NotFoundError
from raykit.plan import Lock
from raykit.read.qc import read_qc
from raykit.read.root import Root
from raykit.read.view import RunView
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_candidate_registry
from raykit.store.commit import verify
from raykit.store.people import read_acts
from raykit.store.plans import newest_stored_lock, read_lock, read_locks
from raykit.store.qc import Examinations

Needed = dict[str, list[str]]
"""By the digest of a manifest: why something needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRead:
    """One run, what could go of it, and why the rest stays."""

    run: str
    rule: KeepRule | None
    found: Retention

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        return {
            "run": self.run,
            "rule": self.rule and {"last": self.rule.last, "every": self.rule.every},
            "goes": [_plain(point) for point in self.found.goes],
            "stays": [{**_plain(each.point), "why": list(each.why)} for each in self.found.stays],
            "size_bytes": self.found.size_bytes,
            "deleted": 0,
        }


def _plain(point: Point) -> dict[str, Any]:
    return {
        "update": point.update,
        "attempt": point.attempt,
        "manifest": point.manifest,
        "key": point.key,
        "size_bytes": point.size_bytes,
    }


def read_retention(store: ObjectStore, name: str, *, now: float) -> RetentionRead:
    """What could go of a run. Files are held against their manifests by name and size.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: the experiment has several runs.
        CorruptError: the run's log, or what says who needs its checkpoints, is damaged.
        StoreUnavailableError: the store did not answer.
    """
    root = Root(store, time.time)
    view = root.run(name)
    rule = _rule(newest_stored_lock(store, view.experiment))
    needed: Needed = defaultdict(list)
    doubts: list[str] = []
    _selected(root, view, needed, doubts)
    _of_people(store, view, needed)
    _of_qc(store, view, needed, now)
    _of_plans(root, needed, doubts)
    return RetentionRead(
        run=view.id, rule=rule, found=retention(_points(store, view), rule, needed=needed, doubts=doubts)
    )


def _rule(lock: Lock | None) -> KeepRule | None:
    run = {} if lock is None else lock.settings.get("run", {})
    keep = run.get("keep_checkpoints")
    return None if keep is None else KeepRule(last=keep["last"], every=keep.get("every"))


def _points(store: ObjectStore, view: RunView) -> list[Point]:
    points = []
    for item in view.commits:
        commit = item.commit
        try:
            verify(store, commit, read_data=False)
            verifies = True
        except CorruptError:
            verifies = False
        points.append(
            Point(
                update=commit.update,
                attempt=commit.attempt,
                manifest=commit.sha256,
                key=commit.key,
                size_bytes=commit.size_bytes,
                counts=item.counts,
                verifies=verifies,
            )
        )
    return points


def _selected(root: Root, view: RunView, needed: Needed, doubts: list[str]) -> None:
    try:
        selected = root.selected(view)
    except CorruptError:
        doubts.append("its development history cannot be read: the plan may select it")
        return
    if selected is not None:
        needed[selected.sha256].append("the plan selects it")


def _of_people(store: ObjectStore, view: RunView, needed: Needed) -> None:
    """What people keep: pins, and every registered candidate."""
    for manifest, pin in read_acts(store, view.experiment).pinned.items():
        needed[manifest].append(f"pinned by {pin.person}: {pin.reason}")
    for candidate in read_candidate_registry(store).candidates.values():
        kept = candidate.preserved
        by = "" if kept is None else f", preserved by {kept[1].person}"
        needed[candidate.manifest].append(f"candidate {candidate.name}{by}")


def _of_qc(store: ObjectStore, view: RunView, needed: Needed, now: float) -> None:
    """What is still to be examined or looked at, under whatever suite it was asked."""
    examinations = Examinations(store, view.experiment)
    for request, said in examinations.said().items():
        if said.asked and said.receipt is None:
            needed[examinations.request(request).checkpoint].append("its QC request is open")
    found = read_qc(store, view.experiment, view.run, now=now)
    for standing in () if found is None else found.backlog.standings:
        if standing.status == "missing":
            needed[standing.wanted.checkpoint].append("its QC has to be asked for")
        elif standing.receipt is not None and standing.review is None:
            needed[standing.wanted.checkpoint].append("its QC is not reviewed")


def _of_plans(root: Root, needed: Needed, doubts: list[str]) -> None:
    """What any plan that was ever locked starts from, or compares itself with."""
    for name in root.experiments():
        try:
            locks = [read_lock(root.store, name, locked.plan) for locked in read_locks(root.store, name)]
        except (CorruptError, NotFoundError):
            doubts.append(f"the plans of {name} cannot be read: one may start from it")
            continue
        for manifest in {lock.base.manifest for lock in locks if lock.base is not None}:
            needed[manifest].append(f"the base of {name}")
