"""A synthetic set that is closed: found by its name and the digest of its manifest; each unit is verified."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from raykit.errors import GateError, InvalidInput, NotFoundError
from raykit.ids import safe_name
from raykit.pauses import Acts
from raykit.records import Contracted, GenerationContract, SetManifest
from raykit.shards.bounds import words
from raykit.shards.units import units_of
from raykit.store import layout
from raykit.store.attempts import damaged, read_exactly
from raykit.store.base import ObjectStore
from raykit.store.generation import Shards, read_contract
from raykit.store.parquet import columns_of, read_parquet
from raykit.store.people import read_acts

BEGINNING = re.compile(r"[0-9a-f]{8,64}")
"""So much of a digest names a manifest: a set has few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSet:
    """A set whose every requested row is accounted for."""

    store: ObjectStore
    contract: GenerationContract
    manifest: SetManifest
    digest: str
    """Of the manifest."""
    said: Contracted
    """What froze the contract."""
    despite: str | None = None
    """Why it is used although it has findings."""

    @property
    def name(self) -> str:
        """`EXPERIMENT/SET`."""
        return f"{self.contract.experiment}/{self.contract.name}"

    @property
    def units(self) -> int:
        """How many units it has."""
        return units_of(self.contract)

    def key(self, unit: int) -> str:
        """Where the rows of a unit lie."""
        contract = self.contract
        digest = self.manifest.units.sha256[unit]
        return layout.generation_data(
            contract.experiment, contract.name, self.manifest.contract, unit, digest
        )

    def data(self, unit: int) -> bytes:
        """The Parquet file of a unit, as its receipt has it.

        Raises:
            CorruptError: it is missing, or does not match its sha256.
            StoreUnavailableError: the store did not answer.
        """
        units = self.manifest.units
        return read_exactly(self.store, self.key(unit), units.sha256[unit], max_bytes=units.size_bytes[unit])

    def table(self, unit: int) -> pa.Table:
        """The rows of a unit.

        Raises:
            CorruptError: they are missing, do not match their sha256, or are other rows than the manifest says.
            StoreUnavailableError: the store did not answer.
        """
        key, produced = self.key(unit), self.manifest.units.produced[unit]
        table = read_parquet(self.data(unit), key)
        if table.num_rows != produced or columns_of(table.schema) != self.manifest.columns:
            raise damaged(key, f"does not hold the {produced:,} rows that the manifest says", "I1")
        return table

    def tables(self) -> Iterator[pa.Table]:
        """The rows of one unit after the other, also of those that have none.

        Raises:
            CorruptError: a unit is missing or damaged.
            StoreUnavailableError: the store did not answer.
        """
        return (self.table(unit) for unit in range(self.units))


# --- finding one --------------------------------------------------------------------------------------------


def closed_set(
    store: ObjectStore, name: str, *, manifest: str | None = None, despite: str | None = None
) -> ClosedSet:
    """The closed set `EXPERIMENT/SET`; the set of an experiment that has only one may be left out.

    `manifest` is the digest of its manifest, or the beginning of it: a set that another one has followed may be meant.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: there is no such set.
        InvalidInput: the experiment has several sets, or `manifest` is no beginning of a digest.
        GateError: the set is not complete, it is another one than `manifest` says, or it has findings and `despite`
            does not say why it is used.
        CorruptError: what the store has of it is damaged.
        StoreUnavailableError: the store did not answer.
    """
    _require_digest(manifest)
    said = find_set(store, name)
    found = _newest(said) if manifest is None else _of_digest(said, manifest)
    _require_clean(found.manifest, despite)
    return replace(found, despite=despite)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSet:
    """What a name means: a set of which at least one contract is frozen."""

    store: ObjectStore
    experiment: str
    set_name: str
    acts: Acts

    @property
    def name(self) -> str:
        """`EXPERIMENT/SET`."""
        return f"{self.experiment}/{self.set_name}"

    @property
    def contracts(self) -> Sequence[Contracted]:
        """All that were frozen for it; the newest counts."""
        return self.acts.contracted[self.set_name]

    def contract(self, said: Contracted) -> GenerationContract:
        """One of its contracts.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        return read_contract(self.store, self.experiment, self.set_name, said.contract)

    def closed(self, said: Contracted) -> ClosedSet | None:
        """The set under one of its contracts; None as long as it is not closed.

        Raises:
            CorruptError: its contract or manifest is damaged, or is another one than the log says.
            StoreUnavailableError: the store did not answer.
        """
        contract = self.contract(said)
        manifest = Shards(self.store, contract).manifest()
        if manifest is None:
            return None
        digest, event = manifest.digest, self.acts.generated.get(said.contract)
        if event is not None and event.manifest != digest:
            key = layout.generation_manifest(self.experiment, self.set_name, said.contract)
            raise damaged(key, "is another manifest than the log says", "I2")
        return ClosedSet(store=self.store, contract=contract, manifest=manifest, digest=digest, said=said)


def find_set(store: ObjectStore, name: str) -> NamedSet:
    """The set that a name means.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: there is no such set.
        InvalidInput: the experiment has several sets, and the name says none.
        CorruptError: a log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    experiment, slash, set_name = name.partition("/")
    acts = read_acts(store, safe_name(experiment))
    known = sorted(acts.contracted)
    if not slash and len(known) == 1:
        set_name = known[0]
    if set_name in known:
        return NamedSet(store=store, experiment=experiment, set_name=set_name, acts=acts)
    names = ", ".join(f"{experiment}/{each}" for each in known)
    if known and not slash:
        raise InvalidInput(f"{experiment} has {len(known)} sets", field="SET", value=name, rule=names)
    raise NotFoundError(
        f"there is no synthetic set {name} in {store.url}",
        field="SET",
        value=name,
        rule=names or "EXPERIMENT/SET, once its contract is frozen",
        remedy="raykit generate status",
    )


# --- refusing one -------------------------------------------------------------------------------------------


def _require_digest(manifest: str | None) -> None:
    if manifest is not None and not BEGINNING.fullmatch(manifest):
        raise InvalidInput(
            f"{manifest!r} is not the digest of a manifest",
            field="manifest",
            value=manifest,
            rule="64 lower-case hexadecimal digits, or the first 8 or more of them",
        )


def _newest(said: NamedSet) -> ClosedSet:
    """The set under its newest contract, which has to be closed."""
    newest = said.contracts[-1]
    found = said.closed(newest)
    if found is not None:
        return found
    contract = said.contract(newest)
    published = len(Shards(said.store, contract).published())
    raise GateError(
        f"{said.name} is not complete: {published:,} of {units_of(contract):,} units are published",
        field="SET",
        value=said.name,
        rule="a set whose every requested row is accounted for",
        remedy="raykit generate PLAN",
    )


def _of_digest(said: NamedSet, manifest: str) -> ClosedSet:
    """The set whose manifest has that digest, under whichever contract."""
    closed = [found for each in said.contracts if (found := said.closed(each)) is not None]
    meant = [found for found in closed if found.digest.startswith(manifest)]
    if meant:
        return meant[-1]
    if not closed:
        return _newest(said)  # says how far it is
    raise GateError(
        f"no set {said.name} has a manifest {manifest[:12]}",
        field="manifest",
        value=manifest,
        rule="one of " + ", ".join(found.digest[:12] for found in closed),
        remedy=f"raykit generate status {said.name}",
    )


def _require_clean(manifest: SetManifest, despite: str | None) -> None:
    if manifest.findings and not (despite and despite.strip()):
        found = "; ".join(words(finding) for finding in manifest.findings)
        raise GateError(
            f"{manifest.experiment}/{manifest.name} is not within its bounds: {found}",
            field="despite",
            rule="a reason why its rows are used all the same",
            remedy='despite="why"; on the command line --despite "why"',
        )
