"""What was seen of this plan and learned from others before: results, conclusions, and the scope of the look."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from raykit.errors import CorruptError, NotFoundError
from raykit.fleet.site import RUN, Site
from raykit.ids import digest_of
from raykit.pauses import Acts
from raykit.plan import Lock, Looked, RunSeen, contract, decision_digest, differences
from raykit.plan.lock import digest_of_decision
from raykit.read.root import Root
from raykit.records import Concluded, Observed
from raykit.review import Negative, Pilot, Seen
from raykit.review.afterwards import FAIL
from raykit.store.base import ObjectStore
from raykit.store.learned import NEGATIVE, alike
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.plans import read_lock, read_plan
from raykit.store.qc import Examinations


def seen_of(site: Site, log: RunLog, observed: list[Observed]) -> Seen | None:
    """What was seen of this plan since it was locked, and what of it has changed; None if it never was.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    if site.locked is None:
        return None
    was = read_plan(site.store, site.name, site.locked.digest)
    changed = differences(was.plain(), site.plan.plain())
    update = log.state.recorded()
    given_up = {key.removeprefix(FAIL) for key, _, now in changed if key.startswith(FAIL) and now is None}
    return Seen(
        update=update if update or observed else None,
        changed={key: (before, after) for key, before, after in changed},
        removed=tuple(name for event in observed for name in event.removed),
        unreported=_unreported(site, given_up) if given_up else frozenset(),
    )


def _unreported(site: Site, metrics: Collection[str]) -> frozenset[str]:
    """Those of some metrics that no receipt of this experiment reports. Without receipts nothing is known of any."""
    said = Examinations(site.store, site.name).said().values()
    receipts = [each.receipt for each in said if each.receipt is not None]
    reported = {name for receipt in receipts for name in receipt.metrics}
    return frozenset(metrics) - reported if receipts else frozenset()


class Other(NamedTuple):
    """Another experiment of the store."""

    lock: Lock | None
    """Its newest."""
    acts: Acts


Others = Mapping[str, Other]


def others_of(site: Site) -> Iterator[tuple[str, Other]]:
    """Every other experiment of the store, by name.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    for name in Root(site.store, time.time).experiments():
        if name == site.name:
            continue
        acts = read_acts(site.store, name)
        yield name, Other(_newest(site.store, name, acts), acts)


def same_decision(site: Site, lock: Lock) -> bool:
    """Whether a lock is for the plan's decision, whatever its spaces and capitals."""
    return digest_of_decision(str(lock.settings.get("decision", ""))) == decision_digest(site.plan)


def _newest(store: ObjectStore, name: str, acts: Acts) -> Lock | None:
    if not acts.locked:
        return None
    try:
        return read_lock(store, name, acts.locked[-1].plan)
    except NotFoundError as error:
        raise CorruptError(
            f"{name} was locked, and its lock is gone: {error}",
            rule="what is known of earlier work can be said",
            remedy="raykit check",
        ) from error


def looked_of(site: Site, lock: Lock, others: Others) -> Looked:
    """The runs of this store that have something to do with this plan, however they ended.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    return Looked(store="this store", runs=tuple(_runs(site, lock, others)))


def _runs(site: Site, lock: Lock, others: Others) -> Iterator[RunSeen]:
    for name, (other, acts) in others.items():
        if other is None or not _related(site, lock, other):
            continue
        log = RunLog(site.store, name, RUN, by="reader")
        log.refresh()
        state = log.state
        ended = state.ended
        concluded = [event for event in acts.learned if isinstance(event, Concluded)]
        yield RunSeen(
            experiment=name,
            state="cancelled" if acts.cancelled is not None else "running" if ended is None else ended.reason,
            update=state.recorded(),
            updates=other.updates,
            outcome=f"{concluded[-1].outcome}: {concluded[-1].says}" if concluded else None,
        )


def _related(site: Site, lock: Lock, other: Lock) -> bool:
    return (
        same_decision(site, other)
        or other.data == lock.data
        or str(other.settings.get("recipe")) == site.plan.recipe
        or (site.base is not None and other.name == site.base.experiment)
    )


def pilot_of(site: Site, others: Others) -> Pilot | None:
    """A pilot from the same weights that people have concluded something from."""
    for name, (lock, acts) in others.items():
        base = None if lock is None else lock.settings.get("base")
        if lock is None or not isinstance(base, Mapping) or base.get("start") != "pilot":
            continue
        if site.base is None or lock.base is None or lock.base.manifest != site.base.manifest:
            continue
        concluded = [event for event in acts.learned if isinstance(event, Concluded)]
        if concluded:
            last = concluded[-1]
            return Pilot(
                experiment=name,
                updates=lock.updates,
                effect=last.effect or last.says,
                decided=last.outcome in ("better", "worse", "equivalent"),
            )
    return None


def negatives_of(site: Site, others: Others) -> Iterator[Negative]:
    """Ideas that came to nothing before, and what this plan has in common with them."""
    decision, setting = decision_digest(site.plan), digest_of(contract(site.plan))
    ideas = () if site.plan.search is None else (site.plan.search.hypothesis,)
    for name, (_, acts) in others.items():
        for event in _standing(acts.learned):
            same = alike(event, decision=decision, contract=setting, hypotheses=ideas)
            if event.outcome in NEGATIVE and {"setting", "hypothesis"} & set(same):
                yield Negative(experiment=name, concluded=event, same=same)


def _standing(learned: Iterable[object]) -> Iterable[Concluded]:
    """Conclusions as they stand: what was concluded later of the same idea counts instead."""
    newest: dict[tuple[object, ...], Concluded] = {}
    for event in learned:
        if isinstance(event, Concluded):
            newest[event.decision, event.contract, event.hypothesis] = event
    return newest.values()
