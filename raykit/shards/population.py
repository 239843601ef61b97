"""Which population the rows of a synthetic set are from: who made them, how, from what. In words, from the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from raykit.records import Contracted, GenerationContract
from raykit.shards.spans import count_in
from raykit.shards.units import units_of

Facts = tuple[tuple[str, str], ...]


def population(contract: GenerationContract, said: Contracted | None = None) -> Facts:
    """Name by name, everything that the rows depend on. `said` is the entry that froze the contract."""
    return tuple(_facts(contract, said))


def _facts(contract: GenerationContract, said: Contracted | None) -> Iterator[tuple[str, str]]:
    yield "teacher", _teacher(contract, said)
    yield "decode", _shown(contract.decode)
    yield "seed", f"{contract.seed}: every row draws by itself, keyed by (production, row)"
    yield "precision", _precision(contract)
    batch = f"{contract.batch_rows:,} rows at once"
    yield "batch", f"{batch}, {contract.unit_rows:,} rows a unit, {units_of(contract):,} units"
    yield "normalization", _shown(contract.normalization) if contract.normalization else "none is said"
    yield "inputs", _inputs(contract)
    yield "recipe", f"{contract.recipe}, code {contract.code[:12]}, params {_shown(contract.params)}"
    yield "columns", ", ".join(f"{column.name}: {column.type}" for column in contract.columns)
    yield "bounds", ", ".join(f"{kind} {100 * most:.3g} %" for kind, most in sorted(contract.bounds.items()))
    yield "exact", _exactness(contract)
    if contract.follows is not None:
        yield "follows", f"contract {contract.follows[:12]}{_why(said)}"
    if contract.reuses is not None:
        units = count_in(contract.reuses.units)
        yield "reuses", f"{units:,} units as contract {contract.reuses.contract[:12]} has made them"


def _teacher(contract: GenerationContract, said: Contracted | None) -> str:
    manifest = f"checkpoint {contract.teacher[:12]}"
    if said is None:
        return manifest
    scripted = ", approved by a script" if said.scripted else ""
    return f"{said.candidate}, update {said.update:,}, {manifest}{scripted}"


def _precision(contract: GenerationContract) -> str:
    autocast = "no autocast" if contract.autocast == "none" else f"autocast {contract.autocast}"
    exactly = "deterministic" if contract.deterministic else "not deterministic"
    threads = f"{contract.threads} thread{'' if contract.threads == 1 else 's'}"
    return f"{contract.dtype}, {autocast}, {exactly}, {threads}"


def _inputs(contract: GenerationContract) -> str:
    if contract.inputs is None:
        return f"none: {contract.rows:,} rows are made from nothing"
    samples = f"{contract.samples} sample{'' if contract.samples == 1 else 's'} of each"
    return f"{contract.inputs[:12]}, {samples}, {contract.rows:,} rows in all"


def _exactness(contract: GenerationContract) -> str:
    if not contract.exact:
        return "no: two attempts at a unit may differ in their bits, and the first one counts"
    facts = ", ".join(f"{name} {text}" for name, text in sorted(contract.facts.items()))
    return "yes: the same bytes whoever makes a unit" + (f", on {facts}" if facts else "")


def _why(said: Contracted | None) -> str:
    return "" if said is None or said.why is None else f", as {said.person} said: {said.why}"


def _shown(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True, default=dict)
