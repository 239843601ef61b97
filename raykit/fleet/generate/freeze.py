"""Freezing the contract of a set: what it is made of first, the event that makes it count last.

A kill anywhere before that event leaves objects that nobody names, and the next start begins again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from raykit.errors import GateError
from raykit.fleet.generate.sets import Changed, Wanted, reuse_of
from raykit.records import Contracted, ExperimentEntry, GenerationContract, Option, Record
from raykit.shards.contract import Probed, changes, make_contract
from raykit.store.base import ObjectStore
from raykit.store.generation import Shards
from raykit.store.inputs import freeze_inputs
from raykit.store.people import People
from raykit.train import frozen


def contract_of(
    store: ObjectStore, wanted: Wanted, probed: Probed, changed: Changed | None
) -> GenerationContract:
    """The contract that is to be frozen; the one that there is, if nothing has changed.

    Raises:
        GateError: the plan has a bound that no column tells, or units cannot be reused.
        InvalidInput: what is to be reused is no list of units.
        CorruptError: a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    old = wanted.contract
    if old is None:
        return make_contract(wanted.draft, probed)
    if not changes(old, wanted.draft, probed):
        return old
    bare = make_contract(wanted.draft, probed, follows=old.digest)
    reuses = None if changed is None or changed.reuse is None else reuse_of(store, old, bare, changed.reuse)
    return bare if reuses is None else make_contract(wanted.draft, probed, follows=old.digest, reuses=reuses)


def keep_parts(store: ObjectStore, wanted: Wanted) -> None:
    """Keep what a producer needs before it can be asked: the recipe's code, and the inputs. Safe to repeat.

    Raises:
        ConflictError: a key holds other bytes.
        UnknownOutcomeError: a reply was lost and could not be read back; do it again.
        StoreUnavailableError: the store did not take it.
    """
    frozen.write_code(store, wanted.draft.experiment, frozen.pack(wanted.files))
    if wanted.inputs is not None:
        freeze_inputs(store, wanted.draft.experiment, *wanted.inputs)


def freeze(
    store: ObjectStore,
    wanted: Wanted,
    contract: GenerationContract,
    *,
    options: Sequence[Option],
    surface: str | None,
    changed: Changed | None,
    by: str,
) -> Contracted:
    """Keep a contract, and then say that it counts. Safe to repeat.

    Raises:
        GateError: another launch has frozen another contract meanwhile.
        ConflictError: a key holds other bytes.
        CorruptError: the log is damaged.
        UnknownOutcomeError: a reply was lost and could not be read back; freeze again.
        StoreUnavailableError: the store did not take it.
    """
    Shards(store, contract).freeze()
    said = Contracted(
        name=contract.name,
        contract=contract.digest,
        candidate=wanted.teacher.candidate,
        update=wanted.teacher.update,
        key=wanted.teacher.key,
        scripted=wanted.teacher.scripted,
        options=tuple(options),
        surface=surface,
        why=wanted.target.why if changed is None else changed.why,
        person=by if changed is None else changed.person,
    )
    people = People(store, contract.experiment, by=by)

    def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
        known = people.acts.contracted.get(said.name, ())
        newest = known[-1].contract if known else None
        if newest == said.contract:
            return []  # another launch was as fast, and says the same
        if newest != wanted.digest:
            raise GateError(
                f"another contract was frozen for {contract.experiment}/{said.name} meanwhile: {newest}",
                field=f"generate.{said.name}",
                rule="one contract from the first unit to the last",
                remedy="raykit generate PLAN",
            )
        return [said]

    people.log.append(decide, at=time.time())
    return people.refresh().contracted[said.name][-1]
