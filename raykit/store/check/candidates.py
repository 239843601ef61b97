"""The registry of candidates: what it may say, and that the weights it names are there, whole."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.errors import CorruptError, InvalidInput
from raykit.ids import sha256
from raykit.records import CandidatesEntry, Record, Registered
from raykit.store import layout
from raykit.store.candidates import is_registered, verify_adopted
from raykit.store.check.logs import read_log
from raykit.store.check.rules import Broken
from raykit.store.check.view import View
from raykit.store.commit import MANIFEST


class RegistryRules:
    """Takes the events of the registry in their order and tells what each of them breaks."""

    def __init__(self) -> None:
        self._known: list[Registered] = []

    def take(self, event: Record) -> Iterator[Broken]:
        """What `event` breaks, given all that were taken before it."""
        if not isinstance(event, Registered):
            return
        try:
            if is_registered(self._known, event):
                yield Broken("I2", "a candidate is registered once", f"{event.candidate} again")
        except InvalidInput as error:
            yield Broken("I2", "a name stands for one set of weights", error.message)
        self._known.append(event)


def check_candidates(view: View) -> None:
    """Look at the registry and at all that it names."""
    log = read_log(view, layout.candidates_log(), CandidatesEntry)
    rules = RegistryRules()
    for key, event in log.events():
        if log.whole:
            for broken in rules.take(event):
                view.find(key, broken.rule, broken.found, broken.invariant)
        if isinstance(event, Registered):
            view.counts["candidates"] += 1
            _adopted(view, key, event) if event.origin == "adopted" else _of_run(view, key, event)


def _adopted(view: View, key: str, event: Registered) -> None:
    """Weights from elsewhere: exactly the files of their manifest."""
    place = layout.adopted(event.manifest, MANIFEST)
    if event.key != place:
        view.find(key, "an event names its own objects", f"it names {event.key}, not {place}", "I1")
    folder = place.rpartition("/")[0]
    files = [each for each in view.known if each.startswith(folder + "/")]
    view.name(files)
    try:
        verify_adopted(view.store, event.manifest, read_data=view.read_data)
    except CorruptError as error:
        view.find(place, "adopted weights are exactly the files of their manifest", error.message, "I1")
    view.progress(sum(view.sizes[each] for each in files))


def _of_run(view: View, key: str, event: Registered) -> None:
    """A checkpoint, which its run's own log stands for: it is still the one that was registered."""
    known = layout.known(event.key)
    if known is None or known.kind != "checkpoint" or known.parts["experiment"] != event.experiment:
        view.find(key, "a candidate is a checkpoint of its experiment", f"it names {event.key}", "I1")
    elif view.size(event.key) is None:
        view.find(event.key, "the weights of a candidate are kept", f"{event.key} is missing", "I1")
    elif sha256(view.get(event.key)) != event.manifest:
        found = f"{event.key} is not the manifest that {event.candidate} was registered with"
        view.find(event.key, "a candidate stays the bytes that it was", found, "I2")
