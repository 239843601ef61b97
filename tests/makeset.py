"""Synthetic sets in a store, without any producer or torch: contracts, receipts, what people say, manifests.

maker = SetMaker(store)                # a trained and examined run whose plan has [generate.digits]
maker.contract_now()                   # freezes a contract of 40 rows in 10 units
maker.publish(0, 1); maker.canary()    # receipts with their Parquet files
maker.take_unit(2); maker.fail_unit(3)          # a claim that nobody ends; one that came to nothing
maker.finish()                         # every other unit, and the manifest
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from makeqc import QcMaker, make_trained

from raykit.ids import sha256
from raykit.records import (
    CanaryPassed,
    Claim,
    Contracted,
    ExperimentEntry,
    Failure,
    FailureKind,
    Generated,
    GenerationContract,
    Option,
    Record,
    Rows,
    SetManifest,
    UnitReceipt,
)
from raykit.shards.closing import close
from raykit.shards.units import unit_id, unit_of, units_of
from raykit.store import layout
from raykit.store.generation import Shards
from raykit.store.log import Log
from raykit.store.parquet import as_stored, columns_of, parquet_bytes

SIDE = 4
"""Of the pictures that it makes."""


class SetMaker(QcMaker):
    """Writes a synthetic set, step by step, as a launch and its workers would."""

    set_name = "digits"
    rows_asked = 40
    unit_rows = 4
    samples = 1
    inputs: str | None = None
    bounds: Mapping[str, float] = {"duplicates": 0.01, "nonfinite": 0.0}
    decode: Mapping[str, Any] = {"temperature": 1.0}
    normalization: Mapping[str, Any] = {"image": {"low": 0.0, "high": 16.0, "shape": [SIDE, SIDE]}}
    scripted = False
    teacher = "selected"
    exact = True
    shards: Shards

    def settings(self) -> dict[str, Any]:
        """The plan with every default, as the lock has it."""
        settings = super().settings()
        settings["generate"] = {
            self.set_name: {
                "teacher": self.teacher,
                "rows": self.rows_asked,
                "unit_rows": self.unit_rows,
                "samples": self.samples,
                "seed": 0,
                "decode": dict(self.decode),
                "bounds": dict(self.bounds),
                "exact": self.exact,
                "canary_units": 2,
                "tries": 3,
            }
        }
        return settings

    # --- what is frozen -------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        own = [pa.field("row", pa.int64())]
        if self.inputs is not None:
            own += [pa.field("id", pa.string()), pa.field("sample", pa.int32())]
        theirs = [pa.field("image", pa.list_(pa.float32())), pa.field("label", pa.int64())]
        return as_stored(pa.schema([*own, *theirs]))

    def contract_of(self, **traits: Any) -> GenerationContract:
        """The contract, not written."""
        return GenerationContract(
            **{
                "experiment": self.experiment,
                "name": self.set_name,
                "teacher": self.commit_at(self.updates).sha256,
                "recipe": "recipe:Digits",
                "params": {"width": 8},
                "code": sha256(b"code"),
                "decode": dict(self.decode),
                "seed": 0,
                "revision": 1,
                "dtype": "float32",
                "autocast": "none",
                "deterministic": True,
                "threads": 1,
                "batch_rows": self.unit_rows,
                "normalization": dict(self.normalization),
                "inputs": None if self.inputs is None else sha256(self.inputs.encode()),
                "samples": self.samples,
                "rows": self.rows_asked,
                "unit_rows": self.unit_rows,
                "columns": columns_of(self.schema),
                "bounds": dict(self.bounds),
                "exact": self.exact,
                "facts": {"torch": "2.13", "cpu": "avx2"},
                **traits,
            }
        )

    def contract_now(self, *, why: str | None = None, **traits: Any) -> GenerationContract:
        """Freeze the contract, or another one that follows it."""
        contract = self.contract_of(**traits)
        self.shards = Shards(self.store, contract, threads=1)
        self.shards.freeze()
        self.tell(
            Contracted(
                name=self.set_name,
                contract=contract.digest,
                candidate="digits-teacher",
                update=self.updates,
                key=self.commit_at(self.updates).key,
                scripted=self.scripted,
                options=(option(), option("cool", took_ms=400, distance=0.05)),
                surface="development",
                why=why,
                person="launch a1",
            )
        )
        return contract

    @property
    def generation_contract(self) -> GenerationContract:
        return self.shards.contract

    # --- units ----------------------------------------------------------------------------------------------

    def table(self, unit: int, *, filtered: int = 0, failed: int = 0) -> pa.Table:
        """The rows of a unit; those that are filtered or failed are its last."""
        there = unit_of(self.generation_contract, unit)
        rows = range(there.first, there.first + there.rows - filtered - failed)
        columns: dict[str, list[Any]] = {"row": list(rows)}
        if self.inputs is not None:
            columns["id"] = [f"{self.inputs}-{row // self.samples}" for row in rows]
            columns["sample"] = [row % self.samples for row in rows]
        columns["image"] = [[float((row + n) % 17) for n in range(SIDE * SIDE)] for row in rows]
        columns["label"] = [row % 10 for row in rows]
        return pa.table(columns, schema=self.schema)

    def publish(self, *units: int, filtered: int = 0, failed: int = 0, **traits: Any) -> None:
        """Publish units, each with so many rows that were filtered or failed."""
        for unit in units:
            claim = self.take_unit(unit)
            receipt, data = self.unit_receipt(unit, filtered=filtered, failed=failed, **traits)
            self.shards.publish(receipt, data, n=claim.n, worker=claim.worker)

    def unit_receipt(
        self, unit: int, *, filtered: int = 0, failed: int = 0, **traits: Any
    ) -> tuple[UnitReceipt, bytes]:
        """The receipt of a unit and its file, not written."""
        there = unit_of(self.generation_contract, unit)
        table = self.table(unit, filtered=filtered, failed=failed)
        data = parquet_bytes(table)
        receipt = UnitReceipt(
            **{
                "contract": self.shards.digest,
                "unit": unit,
                "rows": Rows(requested=there.rows, produced=table.num_rows, filtered=filtered, failed=failed),
                "filtered": {"blank": filtered} if filtered else {},
                "failed": {"ValueError": failed} if failed else {},
                "failed_rows": tuple(range(there.first + there.rows - failed, there.first + there.rows)),
                "counts": {"duplicates": 0},
                "sha256": sha256(data),
                "size_bytes": len(data),
                **traits,
            }
        )
        return receipt, data

    def take_unit(self, unit: int, *, worker: str = "gen-1", deadline_s: float = 600.0) -> Claim:
        """Claim the next attempt at a unit."""
        listing = self.shards.listing()
        n = 1 + max([0, *(each.n for each in listing.claims.get(unit, ()))])
        claim = self.shards.claim(
            unit, n, worker=worker, place=self.place, at=self._tick(), deadline_s=deadline_s
        )
        assert claim is not None
        return claim

    def fail_unit(
        self, unit: int, *, kind: FailureKind = "memory", worker: str = "gen-1", message: str = "it raised"
    ) -> Failure:
        """An attempt at a unit that came to nothing."""
        claim = self.take_unit(unit, worker=worker)
        failure = Failure(
            request=unit_id(self.shards.digest, unit),
            n=claim.n,
            kind=kind,
            signature=sha256(f"{kind} {message}".encode()),
            message=message,
            worker=worker,
            said_by=worker,
            at=self._tick(),
        )
        assert self.shards.fail(unit, failure)
        return failure

    def park(self, unit: int, **traits: Any) -> None:
        """Let a unit come to nothing three times."""
        for n in (1, 2, 3):
            self.fail_unit(unit, worker=f"gen-{n}", **traits)

    # --- what is said of it ---------------------------------------------------------------------------------

    def canary(self) -> None:
        """The first two units are within the bounds."""
        rows = 2 * self.unit_rows
        self.tell(
            CanaryPassed(
                name=self.set_name,
                contract=self.shards.digest,
                units=2,
                rows=Rows(requested=rows, produced=rows, filtered=0, failed=0),
                counts={"duplicates": 0},
                took_ms=800,
                peak_bytes=300_000_000,
                whole_ms=4000,
                low_ms=3600,
                high_ms=4600,
                worst_cost=2_500_000,
            )
        )

    def finish(self, **traits: Any) -> SetManifest:
        """Publish what is left, and close the set."""
        published = set(self.shards.published().tolist())
        self.publish(*(set(range(units_of(self.generation_contract))) - published), **traits)
        return self.close()

    def close(self, *, told: bool = True) -> SetManifest:
        """Close a set whose units are all published."""
        manifest = close(self.generation_contract, self.shards.receipts(), scripted=self.scripted)
        self.shards.close(manifest)
        if told:
            self.tell(
                Generated(
                    name=self.set_name,
                    contract=self.shards.digest,
                    manifest=manifest.digest,
                    rows=manifest.rows,
                    by="launch a1",
                )
            )
        return manifest

    def tell(self, *events: Record) -> None:
        """Say something in the log of the experiment."""
        log = Log(self.store, layout.experiment_log(self.experiment), ExperimentEntry, by="launch a1")
        log.append(lambda entries: list(events), at=self._tick())


def option(name: str = "decode", *, took_ms: int = 800, distance: float = 0.031) -> Option:
    """A way of decoding that was measured on 8 rows."""
    return Option(
        name=name,
        decode={"temperature": 1.0 if name == "decode" else 0.5},
        rows=8,
        produced=8,
        took_ms=took_ms,
        quality={"distance": distance},
        whole_ms=5 * took_ms,
        whole_cost=1_000_000,
    )


def make_set(store: Any, *, contract: bool = True, **traits: Any) -> SetMaker:
    """A trained run with a set whose contract is frozen. `traits` are attributes of the maker."""
    maker = SetMaker(store)
    for name, value in traits.items():
        assert hasattr(maker, name), name
        setattr(maker, name, value)
    make_trained(maker)
    if contract:
        maker.contract_now()
    return maker
