"""The registry of candidates: what it may say, in which order, and that the weights and receipts it names are there."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.candidates import Act, Candidate, Registry, fold
from raykit.candidates.evidence import decisive, selects, why_tied
from raykit.candidates.rules import PRODUCTION_ROLES, UNRECOMMENDED
from raykit.errors import CorruptError, InvalidInput
from raykit.ids import sha256
from raykit.records import (
    CandidateApproved,
    CandidateEvent,
    CandidateRejected,
    CandidatesEntry,
    Dependent,
    Preserved,
    Receipt,
    Recommended,
    Registered,
    Switched,
)
from raykit.store import layout
from raykit.store.candidates import is_registered, verify_adopted
from raykit.store.check.logs import read_log
from raykit.store.check.rules import Broken
from raykit.store.check.view import View
from raykit.store.commit import MANIFEST

STATED = "people decide of what is registered"
BYTES = "an act names the very weights"
RESTS = "a decision rests on examined weights"
MATTERS = "only a difference that matters displaces the incumbent"
PERSON = "production is a person's choice"


class RegistryRules:
    """Takes the events of the registry in their order and tells what each of them breaks.

    Whoever writes there decides against the registry first (`raykit.candidates.rules`); here it is told once more, from
    the events alone.
    """

    def __init__(self) -> None:
        self._said: list[Registered] = []
        self._acts: list[Act] = []

    def take(self, event: CandidateEvent) -> Iterator[Broken]:
        """What `event` breaks, given all that were taken before it."""
        registry = fold(self._acts)
        if isinstance(event, Registered):
            yield from self._registered(event)
            self._said.append(event)
        else:
            yield from _decided(registry, event)
        self._acts.append(Act(n=len(self._acts) + 1, at=0.0, event=event))

    def _registered(self, event: Registered) -> Iterator[Broken]:
        try:
            if is_registered(self._said, event):
                yield Broken("I2", "a candidate is registered once", f"{event.candidate} again")
        except InvalidInput as error:
            yield Broken("I2", "a name stands for one set of weights", error.message)


def _decided(registry: Registry, event: CandidateEvent) -> Iterator[Broken]:
    match event:
        case Switched():
            names = [event.to, *([event.from_] if event.from_ is not None else [])]
        case _:
            names = [event.candidate]
    unknown = [name for name in names if name not in registry.candidates]
    if unknown:
        yield Broken("I8", STATED, f"{event.event} of {', '.join(unknown)}, which nobody has registered")
        return
    candidate = registry.candidates[names[0]]
    match event:
        case Recommended():
            yield from _recommended(registry, candidate, event)
        case CandidateApproved():
            yield from _approved(registry, candidate, event)
        case Dependent() if event.manifest != candidate.manifest:
            yield _other_bytes(candidate, event.manifest)
        case Switched():
            yield from _switched(registry, candidate, event)
        case CandidateRejected() | Preserved() | Dependent() | Registered():
            pass


def _other_bytes(candidate: Candidate, manifest: str) -> Broken:
    return Broken("I8", BYTES, f"{candidate.name} is manifest {candidate.manifest[:12]}, not {manifest[:12]}")


def _recommended(registry: Registry, candidate: Candidate, event: Recommended) -> Iterator[Broken]:
    name, incumbent = candidate.name, registry.incumbent
    if candidate.said.role in UNRECOMMENDED:
        yield Broken("I8", "a diagnostic checkpoint is not recommended", name)
    for evidence in event.evidence:
        if candidate.surface(evidence.surface) is None:
            yield Broken("I8", "a recommendation names a surface of its candidate", evidence.surface)
    if not event.receipts and event.unexamined is None:
        yield Broken("I8", RESTS, f"{name} is recommended without a receipt")
    if incumbent is not None and incumbent.name != name:
        weighed = [each for each in event.evidence if selects(candidate, each)] or event.evidence
        if not any(each.against == incumbent.manifest and why_tied(each) is None for each in weighed):
            yield Broken("I8", MATTERS, f"{name} is recommended over {incumbent.name} on a tie")


def _approved(registry: Registry, candidate: Candidate, event: CandidateApproved) -> Iterator[Broken]:
    name = candidate.name
    if event.manifest != candidate.manifest:
        yield _other_bytes(candidate, event.manifest)
    if candidate.rejected is not None:
        found = f"{name} is rejected by {candidate.rejected[1].person}"
        yield Broken("I8", "what is rejected is not approved", found)
    if not event.receipts and (event.unexamined is None or event.use == "production"):
        yield Broken("I8", RESTS, f"{name} is approved for {event.use} without a receipt")
    if event.use == "production":
        yield from _for_production(registry, candidate, scripted=event.scripted)


def _for_production(registry: Registry, candidate: Candidate, *, scripted: bool) -> Iterator[Broken]:
    name, role, incumbent = candidate.name, candidate.said.role, registry.incumbent
    if scripted:
        yield Broken("I8", PERSON, f"a script has chosen {name}")
    if role not in PRODUCTION_ROLES:
        yield Broken("I8", "a role permits production", f"{name} is a {role}")
    if incumbent is not None and incumbent.name != name and not decisive(candidate, incumbent):
        yield Broken("I8", MATTERS, f"{name} takes the place of {incumbent.name} on a tie")


def _switched(registry: Registry, candidate: Candidate, event: Switched) -> Iterator[Broken]:
    name, incumbent = candidate.name, registry.incumbent
    if candidate.approved_for("production") is None:
        yield Broken("I8", "only what is approved for production goes there", f"{name} is {candidate.state}")
    yield from _for_production(registry, candidate, scripted=event.scripted)
    replaced = incumbent if incumbent is not None and incumbent.name != name else None
    if event.from_ != (replaced and replaced.name):
        found = (
            f"{event.from_ or 'nobody'} is said to be replaced, {replaced.name if replaced else 'nobody'} is"
        )
        yield Broken("I8", "a switch says what it replaces", found)
    seen = event.inventory
    if replaced is not None and (seen is None or seen.manifest != replaced.manifest):
        yield Broken("I8", "a switch shows what falls", f"nobody has seen what depends on {replaced.name}")


# --- the registry and what it names -------------------------------------------------------------------------


def check_candidates(view: View) -> dict[str, Registered] | None:
    """Look at the registry and at all that it names. Returns what was registered, by name; None if it is not whole."""
    log = read_log(view, layout.candidates_log(), CandidatesEntry)
    said: dict[str, Registered] = {}
    rules, homes = RegistryRules(), dict[str, str]()
    for key, entry in log.entries:
        for event in entry.events:
            if log.whole:
                for broken in rules.take(event):
                    view.find(key, broken.rule, broken.found, broken.invariant)
            match event:
                case Registered():
                    view.counts["candidates"] += 1
                    homes[event.candidate] = event.experiment or ""
                    said[event.candidate] = event
                    _adopted(view, key, event) if event.origin == "adopted" else _of_run(view, key, event)
                case Recommended() | CandidateApproved() if event.receipts:
                    _receipts(view, key, homes.get(event.candidate, ""), event)
                case _:
                    pass
    return said if log.whole else None


def _receipts(view: View, key: str, experiment: str, event: Recommended | CandidateApproved) -> None:
    """The receipts that a decision rests on are there, of these weights, and have passed."""
    there = {receipt.digest: receipt for receipt in _readable(view, experiment)}
    for digest in event.receipts:
        found = there.get(digest)
        if found is None:
            view.find(key, RESTS, f"receipt {digest[:12]} of {event.candidate} is not there as it was", "I8")
        elif found.verdict != "passed":
            view.find(key, RESTS, f"receipt {digest[:12]} of {event.candidate} has failed", "I8")
        elif isinstance(event, CandidateApproved) and found.checkpoint != event.manifest:
            view.find(key, RESTS, f"receipt {digest[:12]} is of other weights than {event.candidate}", "I3")


def _readable(view: View, experiment: str) -> Iterator[Receipt]:
    """Every receipt of an experiment that can be read; what is wrong with the others is found where they lie."""
    for key, known in view.known.items():
        if known.kind == "qc-receipt" and known.parts["experiment"] == experiment:
            try:
                yield Receipt.from_bytes(view.store.get(key), key)
            except CorruptError:
                continue


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
