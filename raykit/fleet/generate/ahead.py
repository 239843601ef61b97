"""What the inputs of a plan's sets look like before anything is made of them: read where they lie, and not kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raykit.data.inputs import fetch_source, read_inputs
from raykit.errors import PlanError
from raykit.fleet.generate.sets import folder_of, rules_of
from raykit.fleet.site import Site
from raykit.plan.tables import Generate
from raykit.records import GenerationContract
from raykit.store.generation import read_contract
from raykit.store.parquet import columns_of
from raykit.store.people import read_acts

MAX_BYTES = 256 * 1024 * 1024
"""A larger file is read once its contract is frozen, and not for a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsAhead:
    """The inputs of one set as they would be read now."""

    rows: int = 0
    types: Mapping[str, str] = field(default_factory=dict)
    """By column, in the order of the file, as Arrow writes it."""
    unread: str | None = None
    """Why nothing is known of them."""


def inputs_ahead(site: Site) -> dict[str, InputsAhead]:
    """The inputs of each set that has some.

    Raises:
        CorruptError: a contract in the store is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return {
        name: _ahead(site, target, _contract(site, name))
        for name, target in site.plan.generate.items()
        if target.inputs is not None
    }


def _contract(site: Site, name: str) -> GenerationContract | None:
    said = read_acts(site.store, site.name).contracted.get(name)
    return read_contract(site.store, site.name, name, said[-1].contract) if said else None


def _ahead(site: Site, target: Generate, contract: GenerationContract | None) -> InputsAhead:
    source = target.inputs
    assert source is not None
    if source.startswith("s3://"):
        return InputsAhead(unread="they are read from the bucket when the set is made")
    path = folder_of(site) / source
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        return InputsAhead(
            unread=f"larger than {MAX_BYTES // 1024**2} MiB: they are read when the set is made"
        )
    try:
        data = fetch_source(source, folder_of(site), at="inputs")
        table = read_inputs(data, source, at="inputs", types=target.types, guess=rules_of(contract) is None)
    except PlanError as error:
        return InputsAhead(unread=error.message)
    types = {column.name: column.type for column in columns_of(table.schema)}
    return InputsAhead(rows=table.num_rows, types=types)
