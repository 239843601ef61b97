"""Makes units of a synthetic set with the teacher's verified weights, and says what became of every row.

    producer = Producer(store, contract, "experiments/.../manifest.json", folder)
    made = producer(unit_of(contract, 17))

The same unit under the same exact contract is the same bytes, whatever this process has made before.
"""

from __future__ import annotations

import base64
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from raykit.errors import GateError
from raykit.ids import sha256
from raykit.records import CODE_OF, GenerationContract, UnitReceipt
from raykit.shards.bounds import flags_of, require_unit
from raykit.shards.contract import REVISION, Draft
from raykit.shards.units import Unit
from raykit.store.base import ObjectStore
from raykit.store.contents import contents_of, own_columns
from raykit.store.damage import bad_rows
from raykit.store.inputs import InputsReader, read_inputs_manifest
from raykit.store.parquet import parquet_bytes, schema_of
from raykit.train.build import DTYPE
from raykit.train.looking import VoidError
from raykit.train.synthetic import check_generate
from raykit.work.gen_picture import picture_of
from raykit.work.gen_rows import Answer, Asked, Inputs, RowMaker
from raykit.work.generated import Made
from raykit.work.subject import Blas, Room, Subject, enter, peak_bytes, read_weights

MAX_FAILED = 100
"""How many numbers of failed rows a receipt has."""

MAX_REASONS = 100
"""How many reasons a receipt has by name, of those that rows were filtered for."""

OTHERS = "other reasons"


class Teacher:
    """The weights that make a set, in a process whose arithmetic is as the contract says."""

    def __init__(self, store: ObjectStore, terms: GenerationContract | Draft, key: str, folder: Path) -> None:
        """`key` is that of the teacher's manifest. `folder` is private and empty: the frozen code is unpacked there.

        Raises:
            CorruptError: stored bytes do not match their digests.
            GateError: the recipe cannot generate, or what is in effect here is not what was asked for.
            PlanError: the recipe or its params cannot be opened.
            StoreUnavailableError: the store did not answer.
        """
        _require(
            "revision", REVISION, terms.revision, "install the version of raykit that the contract is from"
        )
        self.room: Room = enter(
            store,
            terms.experiment,
            code=terms.code,
            recipe=terms.recipe,
            params=terms.params,
            threads=terms.threads,
            deterministic=terms.deterministic,
            folder=folder,
        )
        check_generate(self.room.recipe, terms.decode, at=f"generate.{terms.name}.decode")
        _, files = read_weights(store, key, terms.teacher)
        self.subject: Subject = self.room.subject(
            files, seed=terms.seed, dtype=terms.dtype, autocast=terms.autocast
        )
        self.blas = Blas(terms.threads)
        _require_effective(terms, self.subject)

    def facts(self) -> dict[str, str]:
        """What bits depend on beside what the contract asks for."""
        return {**self.room.facts(torch.get_num_threads()), "pyarrow": pa.__version__}


class Producer:
    """Makes units of one contract: a `Make`."""

    def __init__(
        self,
        store: ObjectStore,
        contract: GenerationContract,
        teacher_key: str,
        folder: Path,
        *,
        inputs: Inputs | None = None,
    ) -> None:
        """`teacher_key` is the key of the teacher's manifest; `folder` is private and empty.

        Raises:
            CorruptError: stored bytes do not match their digests.
            GateError: what is in effect here is not what the contract was frozen with; the field says what.
            PlanError: the recipe or its params cannot be opened.
            StoreUnavailableError: the store did not answer.
        """
        self._contract = contract
        self._digest = contract.digest
        self._teacher = Teacher(store, contract, teacher_key, folder)
        for name, fact in sorted(self._teacher.facts().items()) if contract.exact else ():
            if name in contract.facts or not name.startswith(CODE_OF):  # an older contract does not bind it
                _require(
                    f"facts.{name}", fact, contract.facts.get(name), "run on machines like the first one"
                )
        asked = Asked(
            production=contract.production,
            decode=contract.decode,
            batch_rows=contract.batch_rows,
            samples=contract.samples,
            inputs=inputs if inputs is not None else inputs_of(store, contract),
            flags=flags_asked(contract),
        )
        self._rows = RowMaker(self._teacher.subject, asked, contract.columns)

    def __call__(self, unit: Unit) -> Made:
        """Make all rows of a unit.

        Raises:
            GateError: more of its rows are bad than the contract allows (`bounds...`), or the recipe gives something of
                another shape.
            CorruptError: stored inputs do not match their digests.
            StoreUnavailableError: the store did not answer.
            Exception: what the recipe raised, where it raised for all rows, or not again when it was asked again.
        """
        device = self._teacher.room.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        with self._teacher.blas.held():
            answer = self._rows(unit.first, unit.rows)
        data, receipt = self._receipt(unit, answer)
        require_unit(self._contract.bounds, receipt.rows, receipt.failed, receipt.counts)
        require_some(answer)
        picture = self._picture(answer) if unit.number == 0 else None
        self._teacher.subject.watch.close()
        return Made(receipt=receipt, data=data, peak_bytes=peak_bytes(device), picture=picture)

    def _picture(self, answer: Answer) -> bytes | None:
        if answer.table is None:
            return None
        try:
            return picture_of(self._teacher.subject.recipe, answer.table)
        except VoidError:
            raise  # the next unit would be made with what it has changed
        except Exception:  # noqa: BLE001  rows that were made are not lost for their picture
            print("the picture of the first rows was not drawn:", file=sys.stderr)
            traceback.print_exc()  # in the worker's log
            return None

    def _receipt(self, unit: Unit, answer: Answer) -> tuple[bytes, UnitReceipt]:
        table = answer.table
        if table is None:
            table = schema_of(self._contract.columns).empty_table()
        data, contents = parquet_bytes(table), contents_of(own_columns(table))
        receipt = UnitReceipt(
            contract=self._digest,
            unit=unit.number,
            rows=answer.rows,
            filtered=few_reasons(answer.filtered),
            failed=dict(sorted(Counter(answer.failed.values()).items())),
            failed_rows=tuple(sorted(answer.failed))[:MAX_FAILED],
            counts=bad_rows(table, contents, self._contract.bounds, rules=self._contract.rules),
            contents=base64.b64encode(contents).decode(),
            sha256=sha256(data),
            size_bytes=len(data),
        )
        return data, receipt


def few_reasons(found: Counter[str]) -> dict[str, int]:
    """By reason, how many rows there are; the rarest of many reasons are counted together.

    A recipe that writes a number into each reason has as many of them as rows.
    """
    often = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:MAX_REASONS]
    named = Counter(dict(often))
    rest = found.total() - named.total()
    if rest:
        named[OTHERS] += rest
    return dict(sorted(named.items()))


def flags_asked(terms: GenerationContract | Draft) -> frozenset[str] | None:
    """The columns of flags in which no value may be missing; None under the rules that did not ask."""
    return None if terms.rules is None else flags_of(terms.bounds)


def inputs_of(store: ObjectStore, terms: GenerationContract | Draft) -> Inputs | None:
    """The inputs of a set; None where rows are made from nothing.

    Raises:
        CorruptError: their manifest is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    if terms.inputs is None:
        return None
    manifest = read_inputs_manifest(store, terms.experiment, terms.inputs)
    return InputsReader(store, terms.experiment, manifest)


# --- what is refused ----------------------------------------------------------------------------------------


def require_some(answer: Answer) -> None:
    """Let only a unit pass of which something was made: the rows that nobody was asked for aside.

    Raises:
        GateError: every row has failed.
    """
    if not answer.asked or answer.rows.failed < answer.rows.requested:
        return
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in Counter(answer.failed.values()).items())
    raise GateError(
        f"no row came of it: {reasons}", field="recipe.generate", rule="at least one row of a unit"
    )


def _require_effective(terms: GenerationContract | Draft, subject: Subject) -> None:
    """Compare what was asked for with what is in effect in this process."""
    _require("run.threads", torch.get_num_threads(), terms.threads)
    if terms.deterministic:
        _require("run.deterministic", torch.are_deterministic_algorithms_enabled(), True)
    for name, parameter in subject.model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != DTYPE[terms.dtype]:
            _require(f"run.dtype.params of {name}", str(parameter.dtype), terms.dtype)


def _require(field: str, found: Any, wanted: Any, remedy: str | None = None) -> None:
    """Let only what is in effect here pass if it is what was asked for."""
    if found != wanted:
        raise GateError(
            f"{field} is {found} here, and the contract has {wanted}",
            field=field,
            value=found,
            rule=str(wanted),
            remedy=remedy,
        )
