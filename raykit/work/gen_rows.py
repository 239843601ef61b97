"""Asks a recipe for rows of a synthetic set: batch by batch, every row accounted for.

Each row draws from a stream of its own. What a batch cannot give is asked for row by row: a poison row costs itself,
and not the rows beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raykit.data import randomness
from raykit.errors import GateError, RaykitError
from raykit.records import Column, Rows
from raykit.train.build import evaluating
from raykit.work import gen_table
from raykit.work.draws import Draws
from raykit.work.failing import is_of_the_example, words
from raykit.work.subject import Subject

NOT_RETURNED = "not returned"
NONFINITE = "nonfinite"
TOO_LARGE = "input-too-large"

MAX_REASON = 200
"""Characters of a reason."""


class Inputs(Protocol):
    """The inputs of a set, by their place."""

    @property
    def too_large(self) -> Container[int]:
        """Inputs of which only the id was kept: nothing is asked of the recipe for them."""
        ...

    def rows(self, first: int, count: int) -> pa.Table:
        """So many inputs from `first` on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How rows are asked for. All of it is in the contract."""

    production: str
    """What the seeds of all rows are keyed by."""
    decode: Mapping[str, Any]
    batch_rows: int
    samples: int = 1
    inputs: Inputs | None = None


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came of some rows, all of them accounted for."""

    table: pa.Table | None = None
    """The produced rows, raykit's columns first; None if none came so far that it could be judged."""
    filtered: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    """By number of the row: why."""
    asked: int = 0
    """How many of them the recipe was asked for."""
    raised: bool = False
    """The recipe raised for it, alone and twice."""

    @property
    def rows(self) -> Rows:
        produced, filtered = 0 if self.table is None else self.table.num_rows, self.filtered.total()
        return Rows(
            requested=produced + filtered + len(self.failed),
            produced=produced,
            filtered=filtered,
            failed=len(self.failed),
        )


class RowMaker:
    """Makes rows with one model. `columns` are those that every table has; None to take the first one's."""

    def __init__(self, subject: Subject, asked: Asked, columns: tuple[Column, ...] | None = None) -> None:
        self.columns = columns
        self._subject = subject
        self._asked = asked
        self._keep = getattr(subject.recipe, "keep", None)
        self._schema: pa.Schema | None = None

    def __call__(self, first: int, count: int) -> Answer:
        """So many rows from `first` on.

        Raises:
            GateError: the recipe gives something of another shape.
            CorruptError: stored inputs do not match their digests.
            StoreUnavailableError: the store did not answer.
            Exception: what the recipe raised, where it raised for all rows, or not again when it was asked again.
        """
        given, failed = self._given(first, count)
        parts: list[Answer] = []
        raised: list[Exception] = []
        with evaluating(self._subject.model):
            for at in range(0, given.num_rows, self._asked.batch_rows):
                parts += self._batch(given.slice(at, self._asked.batch_rows), raised)
        answer = _together(parts, failed)
        answer.asked = given.num_rows
        if raised and all(part.raised for part in parts):
            raise raised[0]
        return answer

    # --- what is asked --------------------------------------------------------------------------------------

    def _given(self, first: int, count: int) -> tuple[pa.Table, dict[int, str]]:
        """What the recipe is given for each row that it is asked for, and the rows that it is not asked for."""
        rows = np.arange(first, first + count)
        places, samples = np.divmod(rows, self._asked.samples)
        own = {"row": pa.array(rows), "sample": pa.array(samples.astype(np.int32))}
        if self._asked.inputs is None:
            return pa.table(own), {}
        kept = np.array([place not in self._asked.inputs.too_large for place in places.tolist()])
        inputs = self._asked.inputs.rows(int(places[0]), int(places[-1] - places[0]) + 1)
        inputs = inputs.take(pa.array(places - places[0]))
        given = pa.table({**own, **dict(zip(inputs.column_names, inputs.columns, strict=True))})
        return given.filter(pa.array(kept)), dict.fromkeys(rows[~kept].tolist(), TOO_LARGE)

    def _batch(self, given: pa.Table, raised: list[Exception]) -> list[Answer]:
        """A batch; or, where it raises, each of its rows alone."""
        try:
            return [self._ask(given)]
        except Exception as error:
            if not _is_of_rows(error):
                raise
            raised.append(error)
            return self._one_by_one(given, error)

    def _one_by_one(self, given: pa.Table, error: Exception) -> list[Answer]:
        """Each row alone. A row has failed if it raises twice: one that passes then says that it was not the row.

        That a batch raises and none of its rows does is no fault of a row, either. The error goes on in both cases, so
        that a recipe which fails now and then loses no rows by it, and a set never depends on when it did.
        """
        answers = [self._alone(given.slice(place, 1)) for place in range(given.num_rows)]
        if not any(answer.raised for answer in answers):
            raise error
        return answers

    def _alone(self, given: pa.Table) -> Answer:
        try:
            return self._ask(given)
        except Exception as error:
            if not _is_of_rows(error):
                raise
            if type(self._raises(given)) is not type(error):
                raise
            row, reason = given.column("row")[0].as_py(), type(error).__qualname__
            return Answer(failed={row: reason}, raised=True)

    def _raises(self, given: pa.Table) -> Exception | None:
        """What the recipe raises for these rows."""
        try:
            self._ask(given)
        except Exception as error:  # noqa: BLE001  which one is what the caller decides by
            return error
        return None

    # --- what comes back ------------------------------------------------------------------------------------

    def _ask(self, given: pa.Table) -> Answer:
        """What the recipe gives for these rows, judged."""
        rows = given.column("row").to_numpy()
        draws = Draws([randomness.key("generate", self._asked.production, row) for row in rows.tolist()])
        key = randomness.key("generate-batch", self._asked.production, int(rows[0]), len(rows))
        came = self._subject.ask("generate", key, given, draws, **self._asked.decode)
        table, there = gen_table.in_order(came, rows)
        table = self._with_own(given, table, there)
        self._require_columns(table.schema)
        answer = Answer(failed=dict.fromkeys(rows[~there].tolist(), NOT_RETURNED))
        bad = gen_table.nonfinite(table)
        if bad.any():
            answer.failed |= dict.fromkeys(rows[there][bad].tolist(), NONFINITE)
            table = table.filter(pa.array(~bad))
        answer.table = self._kept(table, answer.filtered)
        return answer

    def _with_own(self, given: pa.Table, table: pa.Table, there: NDArray[np.bool_]) -> pa.Table:
        """raykit's columns, and then those of the recipe."""
        if not there.all():
            given = given.filter(pa.array(there))
        names = ["row"] if self._asked.inputs is None else ["row", "id", "sample"]
        return pa.table(
            [*(given.column(name) for name in names), *table.columns], names=[*names, *table.column_names]
        )

    def _require_columns(self, schema: pa.Schema) -> None:
        """Let only the columns pass that every table has, in the same order and of the same types."""
        if self._schema is not None and self._schema.equals(schema):
            return
        found = gen_table.kept_columns(schema)
        self.columns = self.columns or found
        gen_table.require_columns(found, self.columns)
        self._schema = schema

    def _kept(self, table: pa.Table, filtered: Counter[str]) -> pa.Table:
        """The rows that the recipe's own filter lets through; the reasons of the others are counted."""
        if self._keep is None or not table.num_rows:
            return table
        reasons = self._keep(table)
        fits = isinstance(reasons, list) and len(reasons) == table.num_rows
        if not fits or not all(each is None or (isinstance(each, str) and each.strip()) for each in reasons):
            raise GateError(
                "the recipe's keep() gives something else",
                field="recipe.keep",
                rule="a list with None, or the reason why it is filtered, for each row",
            )
        filtered.update(words(reason)[:MAX_REASON] for reason in reasons if reason is not None)
        return table.filter(pa.array([reason is None for reason in reasons]))


def _is_of_rows(error: Exception) -> bool:
    """Whether rows may be what an error is about: not what raykit refuses, and not the machine."""
    return not isinstance(error, RaykitError) and is_of_the_example(error)


def _together(parts: Sequence[Answer], failed: Mapping[int, str]) -> Answer:
    """What came of all rows, in their order."""
    whole = Answer(failed=dict(failed))
    for part in parts:
        whole.failed |= part.failed
        whole.filtered += part.filtered
    tables = [part.table for part in parts if part.table is not None]
    if tables:
        schema = tables[0].schema
        whole.table = pa.concat_tables(
            [table if table.schema.equals(schema) else table.cast(schema) for table in tables]
        ).combine_chunks()
    return whole
