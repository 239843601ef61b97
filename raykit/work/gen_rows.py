"""Asks a recipe for rows of a synthetic set: batch by batch, every row accounted for.

Each row draws from a stream of its own. What a batch cannot give is asked for row by row: a poison row costs itself,
and not the rows beside it. What fails now and then, by no fault of a row, fails the attempt at the unit, and loses no
row: a set never depends on luck.
"""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raykit.data import randomness
from raykit.defects import FLAKY
from raykit.errors import GateError, RaykitError
from raykit.records import Column, Rows
from raykit.store import damage
from raykit.train.build import evaluating
from raykit.work import gen_table
from raykit.work.draws import Draws
from raykit.work.failing import is_of_the_example, words
from raykit.work.subject import Subject

NOT_RETURNED = "not returned"
NONFINITE = "nonfinite"
NO_FLAG = "flag-is-null"
TOO_LARGE = "input-too-large"

MAX_REASON = 200
"""Characters of a reason."""

BY_LUCK = 1e-6
"""A row is called poison if it raises as often as a healthy one would with at most this probability."""

TRIES_ALONE = math.ceil(math.log(BY_LUCK) / math.log(FLAKY))
"""So often a row is asked for alone, and has failed if it raises every time: 12, since 0.3 ** 12 < 1e-6.

`FLAKY` is the greatest share of calls that may fail by chance. The tries cost a poison row twelve calls; with fewer, a
healthy row would now and then be published as failed, for good, and differently in two runs of one contract.
"""


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
    flags: frozenset[str] | None = None
    """Columns that say whether a row is bad, if it has them: one that says nothing has failed. None under the first
    rules, which did not ask."""


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
    raised: Exception | None = None
    """What the recipe raised for it, alone."""

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
        with evaluating(self._subject.model):
            parts = self._parts(given)
        if isinstance(parts, Exception):
            raise parts  # here alone: it passes through the same lines, and has one signature, whatever came before
        answer = _together(parts, failed)
        answer.asked = given.num_rows
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

    def _parts(self, given: pa.Table) -> list[Answer] | Exception:
        """What came of all batches, and where one raises, of each of its rows alone; or what is no fault of a row."""
        parts: list[Answer] = []
        raised: Exception | None = None
        for at in range(0, given.num_rows, self._asked.batch_rows):
            batch = given.slice(at, self._asked.batch_rows)
            came = self._tried(batch)
            if isinstance(came, Answer):
                parts.append(came)
                continue
            raised = came if raised is None else raised
            alone = [self._alone(batch.slice(place, 1)) for place in range(batch.num_rows)]
            if all(answer.raised is None for answer in alone):
                return came
            parts += alone
        if raised is not None and all(part.raised is not None for part in parts):
            return raised
        for part in parts:
            if part.raised is not None and not self._is_poison(given, part):
                return part.raised
        return parts

    def _alone(self, given: pa.Table) -> Answer:
        came = self._tried(given)
        if isinstance(came, Answer):
            return came
        row, reason = given.column("row")[0].as_py(), type(came).__qualname__
        return Answer(failed={row: reason}, raised=came)

    def _is_poison(self, given: pa.Table, answer: Answer) -> bool:
        """Whether a row that has raised alone does so however often it is asked for.

        If it passes, or raises something else, it was not the row: the unit is tried again, and the row is not lost.
        """
        (row,) = answer.failed
        one = given.filter(pc.equal(given.column("row"), row))
        return all(type(self._tried(one)) is type(answer.raised) for _ in range(TRIES_ALONE - 1))

    def _tried(self, given: pa.Table) -> Answer | Exception:
        """What the recipe gives for these rows, or what it raises, if rows may be what that is about."""
        try:
            return self._ask(given)
        except Exception as error:
            if not _is_of_rows(error):
                raise
            traceback.clear_frames(error.__traceback__)  # what is kept of it holds no tensor
            return error

    # --- what comes back ------------------------------------------------------------------------------------

    def _ask(self, given: pa.Table) -> Answer:
        """What the recipe gives for these rows, judged."""
        rows = given.column("row").to_numpy()
        draws = Draws([randomness.key("generate", self._asked.production, row) for row in rows.tolist()])
        key = randomness.key("generate-batch", self._asked.production, int(rows[0]), len(rows))
        came = self._subject.ask("generate", key, given, draws, **self._asked.decode)
        table, there = gen_table.in_order(came, rows)
        if self._asked.flags is not None:
            gen_table.refuse_index(table)
        table = self._with_own(given, table, there)
        self._require_columns(table.schema)
        answer = Answer(failed=dict.fromkeys(rows[~there].tolist(), NOT_RETURNED))
        unsaid = damage.unsaid(table, self._asked.flags or frozenset())
        nonfinite = damage.nonfinite(table)
        bad = nonfinite | unsaid
        if bad.any():
            answer.failed |= dict.fromkeys(rows[there][unsaid].tolist(), NO_FLAG)
            answer.failed |= dict.fromkeys(rows[there][nonfinite].tolist(), NONFINITE)
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
