"""The synthetic sets of one experiment: contracts, their units, and what its log says of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from raykit.errors import CorruptError
from raykit.records import (
    CanaryPassed,
    Contracted,
    Generated,
    GenerationContract,
    GivenUp,
    InputsManifest,
    Record,
    Retried,
)
from raykit.shards.units import unit_id, units_of
from raykit.store import layout
from raykit.store.check.inputs import check_inputs
from raykit.store.check.units import Told, Units
from raykit.store.check.view import View

Events = Sequence[tuple[str, Record]]
"""Events, each with the key of its log entry."""

KEPT = "a contract that counts, or that units are made under, is kept"


def check_generation(view: View, experiment: str, events: Events, *, whole: bool) -> frozenset[str]:
    """Look at everything under `generation/` and `inputs/`, and at what the experiment's log says of it.

    `whole` is whether all of that log could be read. Returns the identities of units that people let be tried again:
    what an identity is of cannot be told from it.
    """
    return _Sets(view, experiment, events, whole).check()


class _Sets:
    def __init__(self, view: View, experiment: str, events: Events, whole: bool) -> None:
        self._view = view
        self._experiment = experiment
        self._events = events
        self._whole = whole
        self._told: dict[tuple[str, str], Told] = {}
        """By set and contract."""
        self._contracts: dict[tuple[str, str], GenerationContract] = {}

    def check(self) -> frozenset[str]:
        self._read_contracts()
        for key, event in self._events:
            self._event(key, event)
        named = {contract.inputs for contract in self._contracts.values() if contract.inputs is not None}
        inputs = check_inputs(self._view, self._experiment, named)
        units = {of: self._units(of, contract, inputs) for of, contract in self._contracts.items()}
        for (name, _), each in units.items():
            contract = each.contract
            if contract.reuses is not None:
                each.check_reused(units.get((name, contract.reuses.contract)))
        return frozenset(self._retried())

    # --- contracts ------------------------------------------------------------------------------------------

    def _read_contracts(self) -> None:
        for of, kinds in self._view.sets[self._experiment].items():
            key = layout.generation_contract(self._experiment, *of)
            if key in self._view.sizes:
                contract = self._read_contract(of, key)
                if contract is not None:
                    self._contracts[of] = contract
            elif kinds.keys() - layout.DERIVED:
                self._view.missing(key, KEPT, "I1")

    def _read_contract(self, of: tuple[str, str], key: str) -> GenerationContract | None:
        view, (name, digest) = self._view, of
        view.counts["sets"] += 1
        data = view.get(key)
        if not view.matches(key, digest, data):
            return None
        try:
            contract = GenerationContract.from_bytes(data, key)
        except CorruptError as error:
            view.find(key, "what a synthetic set is made under", error.message, "I2")
            return None
        if (contract.experiment, contract.name) != (self._experiment, name):
            found = f"it is of {contract.experiment}/{contract.name}"
            view.find(key, "a contract is of its set", found, "I3")
            return None
        return contract

    # --- what the log says ----------------------------------------------------------------------------------

    def _event(self, key: str, event: Record) -> None:
        match event:
            case Contracted():
                self._contracted(key, event)
            case CanaryPassed():
                self._say(key, event, canary=event)
            case GivenUp():
                before = self._told.get((event.name, event.contract), Told(whole=self._whole))
                self._say(key, event, given_up=before.given_up | set(event.units))
                self._in_set(key, event)
            case Generated():
                before = self._told.get((event.name, event.contract), Told(whole=self._whole))
                if before.generated is not None:
                    found = f"{event.contract[:12]} again"
                    self._view.find(key, "a set is closed once", found, "I11")
                self._say(key, event, generated=event)

    def _contracted(self, key: str, event: Contracted) -> None:
        of = (event.name, event.contract)
        view, kept = self._view, layout.generation_contract(self._experiment, *of)
        if of not in view.sets[self._experiment]:  # else it was said, if it is not there
            view.missing(kept, KEPT, "I1")
        view.name([kept])
        contract, before = self._contracts.get(of), self._newest(event.name)
        if contract is not None and self._whole and contract.follows != before:
            found = f"it follows {(contract.follows or 'none')[:12]}, and {(before or 'none')[:12]} was there"
            view.find(key, "a contract follows the one before it", found, "I3")
        self._told[of] = Told(whole=self._whole, contracted=event)

    def _newest(self, name: str) -> str | None:
        """The newest contract of a set so far."""
        return next((contract for each, contract in reversed(self._told) if each == name), None)

    def _say(self, key: str, event: CanaryPassed | GivenUp | Generated, **said: object) -> None:
        of = (event.name, event.contract)
        if of in self._told:
            self._told[of] = replace(self._told[of], **said)  # type: ignore[arg-type]
        elif self._whole and of in self._contracts:
            found = f"{event.event} of {event.contract[:12]}, which no entry before it says to count"
            self._view.find(key, "a contract counts before anything is said of it", found, "I3")

    def _in_set(self, key: str, event: GivenUp) -> None:
        contract = self._contracts.get((event.name, event.contract))
        if contract is not None and max(event.units) >= units_of(contract):
            found = f"unit {max(event.units):,} of {units_of(contract):,}"
            self._view.find(key, "a unit that is given up is of its set", found, "I3")

    def _retried(self) -> Iterator[str]:
        """The units that people let be tried again; each of them was tried."""
        retried = {event.request: (key, event) for key, event in self._events if isinstance(event, Retried)}
        for request, of, unit in self._units_of(retried.keys()):
            key, event = retried[request]
            last = layout.generation_attempt(self._experiment, *of, "claims", unit, event.after)
            if self._view.size(last) is None:
                found = f"nobody has made attempt {event.after} at unit {unit:,} of {of[1][:12]}"
                self._view.find(key, "what a person lets be tried again was tried", found, "I8")
            yield request

    def _units_of(self, requests: Collection[str]) -> Iterator[tuple[str, tuple[str, str], int]]:
        """Which of these identities are of units, and of which."""
        if not requests:
            return
        for of, kinds in self._view.sets[self._experiment].items():
            # As far as its contract tells; where that is damaged, as far as somebody was at them.
            contract = self._contracts.get(of)
            tried = (int(self._view.known[key].parts["unit"]) for key in kinds.get("generation-claim", ()))
            for unit in range(units_of(contract)) if contract is not None else sorted(set(tried)):
                request = unit_id(of[1], unit)
                if request in requests:
                    yield request, of, unit

    # --- units ----------------------------------------------------------------------------------------------

    def _units(
        self, of: tuple[str, str], contract: GenerationContract, inputs: Mapping[str, InputsManifest]
    ) -> Units:
        told, keys = self._told.get(of), self._view.sets[self._experiment][of]
        if told is None:
            self._uncounted(of, keys)
        self._inputs(of, contract, inputs)
        units = Units(self._view, contract, told or Told(whole=self._whole), keys)
        units.check()
        return units

    def _uncounted(self, of: tuple[str, str], keys: Mapping[str, Sequence[str]]) -> None:
        """Without an entry that says so, a contract is what a launch left that was killed before it could."""
        key = layout.generation_contract(self._experiment, *of)
        if not self._whole:
            self._view.name([key])
        elif keys.keys() - layout.DERIVED - {"generation-contract"}:
            self._view.name([key])
            found = f"no entry says that {of[1][:12]} counts"
            self._view.find(key, "units are made under a contract that counts", found, "I3")

    def _inputs(
        self, of: tuple[str, str], contract: GenerationContract, inputs: Mapping[str, InputsManifest]
    ) -> None:
        manifest = inputs.get(contract.inputs or "")
        if manifest is not None and contract.rows > manifest.rows * contract.samples:
            key = layout.generation_contract(self._experiment, *of)
            found = f"{contract.rows:,} rows of {manifest.rows:,} inputs"
            self._view.find(key, "every row has an input", found, "I3")
