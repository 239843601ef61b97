"""Asks the real producer before a contract is frozen: what its rows are, what each way of decoding takes, and is worth.

One unit's worth of rows, with the teacher's own weights, for the plan's decoding and for each of its options. What can
be refused is refused here, before anything is paid for.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raykit.data import randomness
from raykit.data.members import load, names_of
from raykit.errors import GateError
from raykit.records import Column, Rows
from raykit.shards.contract import Draft, Probed
from raykit.store.base import ObjectStore
from raykit.store.parquet import parquet_bytes
from raykit.train import rng
from raykit.train.build import evaluating
from raykit.train.inputs import content_of, dataset_of
from raykit.train.looking import VoidError
from raykit.train.recipe import asking
from raykit.train.synthetic import check_generate, normalization_of
from raykit.work.gen_picture import picture_of
from raykit.work.gen_rows import Answer, Asked, RowMaker
from raykit.work.gen_unit import Teacher, flags_asked, inputs_of, require_some
from raykit.work.subject import peak_bytes

OWN = "decode"
"""The name of the plan's own way of decoding."""

SELECTS: Final = "development"
"""The one split that quality may be measured on, since it decides which way of decoding is taken."""

FEW: Final = 16
"""So many rows show whether a name of `decode` changes anything."""

MAX_REAL = 4096
"""So many real examples are given to a recipe's quality, the first of their split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """Where the real examples are that rows are held against."""

    data: str
    """Digest of the members of the splits."""
    source: Mapping[str, tuple[str, ...]] | None = None
    """What the recipe's `dataset` is given; None if it has its own data."""
    role: str = SELECTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way of decoding on the real producer."""

    name: str
    """`decode` for the plan's own."""
    decode: Mapping[str, Any]
    rows: Rows
    took_ms: int
    quality: Mapping[str, float | None] = field(default_factory=dict)
    """By metric of the recipe; what is not a finite number is None."""
    idle: tuple[str, ...] = ()
    """Names of `decode` that change no byte of the first rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the real producer says of itself, and what it took."""

    probed: Probed
    measured: tuple[Measured, ...]
    """The plan's own decoding first, then its options in their order."""
    peak_bytes: int


def probe(
    store: ObjectStore,
    draft: Draft,
    teacher_key: str,
    folder: Path,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    real: Real | None = None,
) -> Probe:
    """Ask the producer for one unit's worth of rows in every way of decoding.

    The code and the inputs that the draft names are in the store. `folder` is private and empty. With `real`, the
    recipe says of each way how good its rows are.

    Raises:
        PlanError: the recipe cannot be opened, has no `generate`, or that does not take a name of `decode`.
        GateError: it gives no rows, or something of another shape; quality would be measured on a split that may not
            select; or two runs under an exact contract differ.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
        Exception: what the recipe raised for every row.
    """
    at = f"generate.{draft.name}"
    if real is not None and real.role != SELECTS:
        raise GateError(
            f"quality would be measured on {real.role}, which may not select",
            field=f"{at}.quality",
            value=real.role,
            rule=SELECTS,
        )
    teacher = Teacher(store, draft, teacher_key, folder)
    ways = {OWN: draft.decode, **(options or {})}
    for name, decode in ways.items():
        where = f"{at}.decode" if name == OWN else f"{at}.options.{name}"
        check_generate(teacher.room.recipe, decode, at=where)
    asked = _Asking(store, draft, teacher, None if real is None else _examples(store, draft, teacher, real))
    with teacher.blas.held():
        asked.begin()
        measured = tuple(asked.measure(name, decode) for name, decode in ways.items())
    teacher.subject.watch.close()
    return Probe(
        probed=Probed(
            columns=asked.columns,
            normalization=normalization_of(teacher.room.recipe, teacher.room.params),
            facts=teacher.facts(),
        ),
        measured=measured,
        peak_bytes=peak_bytes(teacher.room.device),
    )


class _Asking:
    """One unit's worth of rows, asked for in one way of decoding after the other."""

    def __init__(
        self, store: ObjectStore, draft: Draft, teacher: Teacher, real: Sequence[Any] | None
    ) -> None:
        self.columns: tuple[Column, ...] = ()
        self._draft = draft
        self._subject = teacher.subject
        self._real = real
        self._inputs = inputs_of(store, draft)
        self._begun = b""

    def begin(self) -> None:
        """Ask in the plan's own way. What a process does only once is done with it, and these rows fix the columns."""
        answer, _ = self._ask(self._draft.decode)
        self._begun = _bytes(answer)

    def measure(self, name: str, decode: Mapping[str, Any]) -> Measured:
        answer, took_ms = self._ask(decode)
        if name == OWN and self._draft.exact and _bytes(answer) != self._begun:
            raise GateError(
                "asked twice, the recipe gives other rows",
                field=f"generate.{self._draft.name}.exact",
                value=True,
                rule="the same rows whenever it is asked",
                remedy="draw from rng; or say exact = false, where the arithmetic itself is not reproducible",
            )
        idle = self._idle() if name == OWN else self._as_own(decode, answer)
        return Measured(
            name=name,
            decode=decode,
            rows=answer.rows,
            took_ms=took_ms,
            quality=self._quality(answer),
            idle=idle,
        )

    def _idle(self) -> tuple[str, ...]:
        """The names of the plan's own decoding without which the first few rows are the same bytes."""
        decode = self._draft.decode
        known = inspect.signature(self._subject.recipe.generate).parameters
        needless = [
            name
            for name, value in decode.items()
            if name not in known or known[name].default not in (inspect.Parameter.empty, value)
        ]
        with_all = self._few(decode) if needless else b""
        return tuple(name for name in needless if with_all and self._few(_without(decode, name)) == with_all)

    def _as_own(self, decode: Mapping[str, Any], answer: Answer) -> tuple[str, ...]:
        """The names in which a way of decoding differs from the plan's own, if its rows are the same bytes."""
        own = self._draft.decode
        differs = [name for name in {**own, **decode} if own.get(name) != decode.get(name)]
        return tuple(differs) if _bytes(answer) == self._begun else ()

    def _few(self, decode: Mapping[str, Any]) -> bytes:
        """The first few rows, decoded in this way; nothing if the recipe does not make them so."""
        try:
            return _bytes(self._maker(decode)(0, min(FEW, self._draft.unit_rows, self._draft.rows)))
        except VoidError:
            raise
        except Exception:  # noqa: BLE001  a recipe that needs the name may raise anything
            return b""

    def _ask(self, decode: Mapping[str, Any]) -> tuple[Answer, int]:
        maker = self._maker(decode)
        start_s = time.monotonic()
        answer = maker(0, min(self._draft.unit_rows, self._draft.rows))
        took_ms = round(1000 * (time.monotonic() - start_s))
        require_some(answer)
        if maker.columns is None:
            raise GateError(
                "no input of the first unit can be used, so that nothing is known of the rows",
                field=f"generate.{self._draft.name}.inputs",
                rule="at least one input that is not too large",
            )
        self.columns = maker.columns
        if answer.table is not None:
            picture_of(self._subject.recipe, answer.table)  # what cannot be drawn is known now
        return answer, took_ms

    def _maker(self, decode: Mapping[str, Any]) -> RowMaker:
        asked = Asked(
            production=self._draft.teacher,
            decode=decode,
            batch_rows=self._draft.batch_rows,
            samples=self._draft.samples,
            inputs=self._inputs,
            flags=flags_asked(self._draft),
        )
        return RowMaker(self._subject, asked, self.columns or None)

    def _quality(self, answer: Answer) -> dict[str, float | None]:
        if self._real is None or answer.table is None:
            return {}
        rng.seed(randomness.key("generate-quality", self._draft.teacher))
        with evaluating(self._subject.model), self._subject.autocast():
            found = self._subject.recipe.quality(answer.table, self._real)
        fits = isinstance(found, Mapping) and all(
            isinstance(name, str) and isinstance(value, int | float) for name, value in found.items()
        )
        if not fits:
            raise GateError(
                "the recipe's quality() gives something else",
                field="recipe.quality",
                rule="a dict of numbers by name",
            )
        return {name: float(value) if math.isfinite(value) else None for name, value in found.items()}


def _without(decode: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in decode.items() if each != name}


def _bytes(answer: Answer) -> bytes:
    return b"" if answer.table is None else parquet_bytes(answer.table)


def _examples(store: ObjectStore, draft: Draft, teacher: Teacher, real: Real) -> list[Any]:
    """The real examples of a split, as the recipe's dataset gives them."""
    room = teacher.room
    if not callable(getattr(room.recipe, "quality", None)):
        raise GateError(
            "the plan compares ways of decoding, and the recipe has no quality()",
            field=f"generate.{draft.name}.quality",
            remedy="give the recipe a quality(table, real), or take quality and options out of the plan",
        )
    with asking("the recipe's dataset"):
        dataset = dataset_of(room.recipe, room.params, real.source)
    members = load(store, draft.experiment, real.data).tables[SELECTS].slice(0, MAX_REAL)
    place_of = {name: i for i, name in enumerate(names_of(len(dataset), getattr(dataset, "ids", None)))}
    examples, changed = [], []
    for id, content in zip(members["id"].to_pylist(), members["sha256"].to_pylist(), strict=True):
        if id not in place_of or content_of(dataset, place_of[id]) != content:
            changed.append(id)
            continue
        rng.seed(randomness.key("generate-real", id))
        examples.append(dataset[place_of[id]])
    if changed:
        raise GateError(
            f"{len(changed):,} members of {SELECTS} are not in the data, or have another content: {changed[0]}",
            field="dataset.content",
            rule="the members that the checkpoint was selected on",
            remedy="put the data back",
        )
    return examples
