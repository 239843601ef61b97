"""Examines one checkpoint: its weights, the roster's units one by one, and a receipt.

A unit is run alone, as a batch of one, and everything that is random about it is keyed by the suite's revision and
the unit's id. Its numbers therefore depend on the weights and on the unit, not on its neighbours, on the order of the
data, or on what this process has examined before. Only a term that says that it relates rows is run in batches, which
are the same for every checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch.utils.data import default_collate

from raykit import history
from raykit.data import randomness
from raykit.errors import CorruptError, GateError
from raykit.ids import digest_of, sha256
from raykit.qc.fields import (
    Rises,
    all_finite,
    field_score,
    finite_share,
    median_field,
    partners,
)
from raykit.qc.scores import Numbers, Outcome, Term, pooled_ratio, scores, tallies, tally
from raykit.qc.verdict import Found, judge
from raykit.records import (
    Artifact,
    FieldScore,
    Receipt,
    Request,
    Roster,
    RosterUnit,
    Setting,
    Suite,
)
from raykit.store.base import ObjectStore
from raykit.train import asked, rng
from raykit.train.build import evaluating
from raykit.train.inputs import dataset_of
from raykit.train.loader import to_device
from raykit.train.params import check_params
from raykit.train.recipe import LossTerm
from raykit.train.together import ROWS, require_means
from raykit.work.again import Elsewhere
from raykit.work.answers import (
    fields_of,
    flat,
    numbers_of,
    pictures_of,
    require_same,
    require_the_same,
    terms_of,
    to_array,
)
from raykit.work.examined import Examined
from raykit.work.failing import is_of_the_example
from raykit.work.panels import Picture, sheet
from raykit.work.qc_places import Place, places_of, require_bound, require_reference, room_of
from raykit.work.related import batches, micro_batch, shared
from raykit.work.subject import MODEL, Room, Subject, peak_bytes, read_weights

PANELS = "panels.png"
MAX_FAILED = 100
"""How many units that failed or are missing a receipt names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a model made of one unit. Its fields are there even if the unit was not finite."""

    place: Place
    outcome: Outcome
    fields: Mapping[str, torch.Tensor]

    def flat(self) -> dict[str, list[float]]:
        """All that was said of it, as plain numbers by name."""
        return flat(self.outcome.numbers, self.fields)


class Bench:
    """Everything that examining the checkpoints of one suite shares: code, recipe, data, and the roster's places."""

    def __init__(
        self,
        store: ObjectStore,
        experiment: str,
        suite: Suite,
        roster: Roster,
        folder: Path,
        *,
        room: Room | None = None,
        setting: Setting | None = None,
        elsewhere: Elsewhere | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """`folder` is private and empty: the frozen code is unpacked there, unless there is a `room`, which has it. A
        trial has a `setting`. `elsewhere` says which checkpoints another process is asked about as well; None for none.
        `only` are the units that will be asked for, where that is not the whole roster.

        Raises:
            CorruptError: stored bytes do not match their digests.
            GateError: the roster is not the suite's, or units of it have another content than they had
                (`dataset.content`).
            PlanError: the recipe, its params or its data cannot be opened.
            StoreUnavailableError: the store did not answer.
        """
        require_bound("roster", roster.digest, suite.roster)
        self._store = store
        self._suite = suite
        self._suite_digest = suite.digest
        self._roster = roster
        self._folder = folder
        self._setting = setting
        self._elsewhere = elsewhere
        self._room = room or room_of(store, experiment, suite, folder)
        if setting is not None:
            params = check_params(self._room.recipe, {**suite.params, **setting.params})
            self._room = replace(self._room, params=params)
        self._seed = suite.seed if setting is None else setting.seed
        self._device = self._room.device
        recipe: Any = self._room.recipe
        self._dataset = dataset_of(recipe, self._room.params, suite.source)
        self._collate = getattr(recipe, "collate", None) or default_collate
        self._draws = not getattr(self._dataset, "deterministic", False)
        self._places = places_of(roster, self._dataset, only)
        self._apart = False
        """Whether it was looked at that no term relates rows without saying so."""

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        """Examine one checkpoint; `key` is that of its manifest, `reference` the receipt at update 0.

        Raises:
            CorruptError: stored bytes do not match their digests.
            StoreUnavailableError: the store did not answer.
            GateError: the recipe gives something of another shape, the request is of another suite, or the receipt at
                update 0 is not there.
        """
        require_bound("suite", self._suite_digest, request.suite)
        require_reference(request, reference)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        # NumPy's linear algebra gives other bits on other numbers of threads.
        with threadpool_limits(limits=self._suite.threads, user_api="blas"):
            subject, weights = self._subject(request, key)
            with evaluating(subject.model):
                alone = self._see_all(subject)
                self._see_again(subject, alone, request, key)
                seen = self._together(subject, request, alone)
                rises = self._rises(subject, [each for each in seen if each.outcome.end == "scored"])
                pictures = self._pictures(subject, seen)
            subject.watch.close()
            receipt = self._receipt(request, reference, seen, rises, pictures, weights)
        return Examined(receipt=receipt, pictures=pictures, peak_bytes=peak_bytes(self._device))

    def answers(self, request: Request, key: str) -> dict[str, dict[str, list[float]]]:
        """What is said of every unit of a checkpoint, by unit: for whoever compares it.

        Raises:
            CorruptError: stored bytes do not match their digests.
            StoreUnavailableError: the store did not answer.
            GateError: the recipe gives something of another shape, or changes what it is asked about.
        """
        with threadpool_limits(limits=self._suite.threads, user_api="blas"):
            subject, _ = self._subject(request, key)
            with evaluating(subject.model):
                seen = [self._see(subject, place) for place in reversed(self._places)]
            subject.watch.close()
        return {each.place.unit.id: each.flat() for each in seen}

    # --- the model ------------------------------------------------------------------------------------------

    def _subject(self, request: Request, key: str) -> tuple[Subject, str]:
        """The model of a checkpoint with its weights and their digest, and a recipe of its own with its state."""
        update, files = read_weights(self._store, key, request.checkpoint)
        if update != request.update:
            raise CorruptError(f"{key} is of update {update}, and the request of {request.update}", rule="I3")
        suite = self._suite
        found = self._room.subject(files, seed=self._seed, dtype=suite.dtype, autocast=suite.autocast)
        return found, sha256(files[MODEL])

    # --- the units ------------------------------------------------------------------------------------------

    def _key(self, unit: RosterUnit) -> int:
        return randomness.key("qc", self._suite.revision, unit.id)

    def _batch(self, *places: Place) -> Any:
        """Units as a batch, on the device: the same one whenever it is asked for."""
        return to_device(self._collate([self._item(place) for place in places]), self._device)

    def _item(self, place: Place) -> Any:
        if self._draws:
            rng.seed(randomness.key("qc-item", self._suite.revision, place.unit.id))
        return self._dataset[place.index]

    def _see_all(self, subject: Subject) -> list[_Seen]:
        seen: list[_Seen] = []
        first: Numbers | None = None
        for place in self._places:
            found = self._see(subject, place)
            numbers = found.outcome.numbers
            if numbers is not None:
                first = first or numbers
                require_same(first, numbers)
            seen.append(found)
        return seen

    def _see(self, subject: Subject, place: Place) -> _Seen:
        if place.index is None:
            return _Seen(place=place, outcome=Outcome(unit=place.unit, end="missing"), fields={})
        raised = _Seen(place=place, outcome=Outcome(unit=place.unit, end="raised"), fields={})
        if not place.readable:
            return raised
        try:
            batch = self._batch(place)
        except Exception as error:  # whatever a dataset raises about one example is that example's failure
            if not is_of_the_example(error):
                raise
            return raised
        key, declared = self._key(place.unit), self._suite.fields
        numbers = numbers_of(subject, batch, key)
        fields = fields_of(subject, batch, key, declared)
        arrays = {name: to_array(value) for name, value in fields.items()}
        if numbers.empty():
            return _Seen(place=place, outcome=Outcome(unit=place.unit, end="empty"), fields={})
        finite = numbers.finite() and all_finite(arrays, declared)
        outcome = Outcome(
            unit=place.unit, end="scored" if finite else "nonfinite", numbers=numbers if finite else None
        )
        return _Seen(place=place, outcome=outcome, fields=fields)

    def _see_again(self, subject: Subject, seen: Sequence[_Seen], request: Request, key: str) -> None:
        """Ask for a few units once more, in another order; and another process, where that is due.

        Raises:
            GateError: something else is said of one of them.
        """
        scored = [each for each in seen if each.outcome.end == "scored"]
        few = (
            [scored[at] for at in sorted({0, len(scored) // 2, len(scored) - 1}, reverse=True)]
            if scored
            else []
        )
        exact = self._suite.deterministic
        for each in few:
            now = self._see(subject, each.place).flat()
            require_the_same(each.place.unit.id, each.flat(), now, "after the others", exact=exact)
        told = (
            None
            if self._elsewhere is None
            else self._elsewhere.examine(
                self._store.url,
                self._suite,
                self._roster,
                request,
                key,
                [each.place.unit.id for each in few],
                self._setting,
                self._folder,
            )
        )
        if told is None:
            return
        for each in few:
            now = told[each.place.unit.id]
            require_the_same(each.place.unit.id, each.flat(), now, "by another process", exact=exact)

    # --- terms that relate rows -----------------------------------------------------------------------------

    def _together(self, subject: Subject, request: Request, seen: Sequence[_Seen]) -> list[_Seen]:
        """The same, with the terms that relate rows examined in batches; none that does so unsaid is let through."""
        scored = [each for each in seen if each.outcome.numbers is not None]
        relating = {
            name
            for each in scored
            if each.outcome.numbers is not None
            for name, term in each.outcome.numbers.terms.items()
            if term.relates_rows
        }
        if not relating:
            if not self._apart:
                self._require_means(subject, [each.place for each in scored])
            self._apart = True
            return list(seen)
        size = micro_batch(self._store, request.experiment, request.suite, request.run)
        told: dict[str, Outcome] = {}
        for own, batch in batches(scored, size):
            key = randomness.key("qc-batch", self._suite.revision, batch[0].place.unit.id)
            given = subject.ask("losses", key, self._batch(*(each.place for each in batch)))
            terms = terms_of(given, "losses")
            told |= {each.place.unit.id: shared(each.outcome, terms, relating, len(batch)) for each in own}
        return [replace(each, outcome=told.get(each.place.unit.id, each.outcome)) for each in seen]

    def _require_means(self, subject: Subject, places: Sequence[Place]) -> None:
        """Look at a few units at once, beside each by itself.

        Raises:
            GateError: a term relates them, and does not say so.
        """
        chosen = places[:: max(1, len(places) // ROWS)][:ROWS]
        try:
            self._batch(*chosen)
        except Exception:  # noqa: BLE001 - they do not fit into one batch, which nobody asks of them
            return

        def ask(rows: Sequence[int], key: int) -> Mapping[str, LossTerm]:
            batch = self._batch(*(chosen[row] for row in rows))
            return asked.terms_of(subject.ask("losses", key, batch))

        suite = self._suite
        rounded = suite.dtype != "float32" or suite.autocast != "none"
        require_means(ask, range(len(chosen)), rounded=rounded)

    # --- is a field used? -----------------------------------------------------------------------------------

    def _rises(self, subject: Subject, scored: Sequence[_Seen]) -> dict[str, Rises]:
        """By field: how much the ratio rises when it is another unit's, or the roster's median."""
        if not subject.has("losses_given") or not scored:
            return {}
        fields = {name: _Forced.of(name, scored, self._suite) for name in self._suite.fields}
        for seen in scored:
            batch, key = self._batch(seen.place), self._key(seen.place.unit)
            for name, forced in fields.items():
                for how, value in forced.values_for(seen):
                    given = subject.ask("losses_given", key, batch, {name: value.to(self._device)})
                    forced.add(how, seen, terms_of(given, "losses_given"))
        return {name: forced.rises() for name, forced in fields.items()}

    # --- what comes of it -----------------------------------------------------------------------------------

    def _pictures(self, subject: Subject, seen: Sequence[_Seen]) -> dict[str, bytes]:
        if not subject.has("panels"):
            return {}
        by_id = {each.place.unit.id: each for each in seen}
        shown = [by_id[id] for id in self._roster.shown]
        rows: list[Mapping[str, Picture] | None] = [
            None
            if each.outcome.end in ("raised", "missing")
            else pictures_of(subject, self._batch(each.place), self._key(each.place.unit))
            for each in shown
        ]
        names = next((list(row) for row in rows if row), [])
        if any(row is not None and list(row) != names for row in rows):
            raise GateError(
                "the recipe's panels() gives other pictures for other examples",
                field="recipe.panels",
                rule="the same names for every example",
            )
        if not names:
            return {}
        cells = [[None if row is None else row[name] for name in names] for row in rows]
        return {PANELS: sheet(cells, names)}

    def _receipt(
        self,
        request: Request,
        reference: Receipt | None,
        seen: Sequence[_Seen],
        rises: Mapping[str, Rises],
        pictures: Mapping[str, bytes],
        weights: str,
    ) -> Receipt:
        suite, names = self._suite, list(self._roster.quotas)
        outcomes = [each.outcome for each in seen]
        ids = {
            end: [o.unit.id for o in outcomes if o.end == end]
            for end in ("nonfinite", "raised", "missing", "empty")
        }
        found = Found(
            update=request.update,
            units=tally(outcomes),
            strata=tallies(outcomes, names),
            metrics=scores(outcomes, names, suite.fail),
            fields=dict(self._fields(seen, reference, rises)),
            weights=weights,
            scores=digest_of([each.plain() for each in outcomes if each.numbers is not None]),
            **ids,
        )
        judged = judge(suite, found, reference)
        return Receipt(
            request=request.id,
            experiment=request.experiment,
            run=request.run,
            update=request.update,
            checkpoint=request.checkpoint,
            suite=request.suite,
            roster=suite.roster,
            code=suite.code,
            config=suite.config,
            revision=suite.revision,
            reference=None if reference is None else reference.digest,
            facts={**self._room.facts(suite.threads), "pillow": metadata.version("pillow")},
            units=found.units,
            strata=found.strata,
            failed_units=tuple(o.unit.id for o in outcomes if o.end in ("nonfinite", "raised", "missing"))[
                :MAX_FAILED
            ],
            metrics=found.metrics,
            fields=found.fields,
            artifacts=tuple(
                Artifact(name=name, sha256=sha256(data), size_bytes=len(data))
                for name, data in pictures.items()
            ),
            unjudged=judged.unjudged,
            findings=judged.findings,
            notes=judged.notes or None,
            weights=found.weights,
            scores=found.scores,
            verdict=judged.verdict,
        )

    def _fields(
        self, seen: Sequence[_Seen], reference: Receipt | None, rises: Mapping[str, Rises]
    ) -> Iterator[tuple[str, FieldScore]]:
        for name, rule in self._suite.fields.items():
            given = [(each, to_array(each.fields[name])) for each in seen if name in each.fields]
            yield (
                name,
                field_score(
                    [(each.place.unit.stratum, v) for each, v in given if each.outcome.end == "scored"],
                    rule,
                    self._roster.quotas,
                    reference=None if reference is None else reference.fields.get(name),
                    finite=finite_share([values for _, values in given], rule.space),
                    rises=rises.get(name, Rises()),
                ),
            )


def bench_of(
    store: ObjectStore,
    suite: Suite,
    roster: Roster,
    folder: Path,
    setting: Setting | None,
    *,
    only: Collection[str],
) -> Bench:
    """What asks for some units alone, in a process of its own. Raises what `Bench` raises."""
    return Bench(store, suite.experiment, suite, roster, folder, setting=setting, only=only)


class _Forced:
    """One field, forced to be its own, another unit's, or the median: the main loss term of each unit, by way."""

    def __init__(
        self, values: Mapping[str, torch.Tensor], partner: Mapping[str, str], median: torch.Tensor | None
    ):
        self._values = values
        self._partner = partner
        self._median = median
        self._terms: dict[str, dict[str, Term]] = {"own": {}, "permuted": {}, "median": {}}

    @classmethod
    def of(cls, name: str, scored: Sequence[_Seen], suite: Suite) -> _Forced:
        values = {each.place.unit.id: each.fields[name] for each in scored}
        shapes = [(id, tuple(value.shape)) for id, value in values.items()]
        middle = median_field([to_array(value) for value in values.values()], suite.fields[name].space)
        kind = next(iter(values.values())).dtype
        median = None if middle is None else torch.from_numpy(middle).to(kind)
        return cls(values, partners(shapes, suite.revision), median)

    def values_for(self, seen: _Seen) -> Iterator[tuple[str, torch.Tensor]]:
        id = seen.place.unit.id
        yield "own", self._values[id]
        if id in self._partner:
            yield "permuted", self._values[self._partner[id]]
        if self._median is not None:
            yield "median", self._median

    def add(self, how: str, seen: _Seen, terms: Mapping[str, Term]) -> None:
        """The first term with a scale counts; a recipe that gives none cannot be asked about this field."""
        main = next((term for term in terms.values() if term.scale is not None), None)
        if main is not None:
            self._terms[how][seen.place.unit.id] = main

    def rises(self) -> Rises:
        return Rises(permuted=self._rise("permuted"), median=self._rise("median"))

    def _rise(self, how: str) -> float | None:
        """Over the units that both were asked of."""
        there = self._terms[how]
        own = pooled_ratio([self._terms["own"][id] for id in there if id in self._terms["own"]])
        other = pooled_ratio(list(there.values()))
        return None if own is None or other is None else history.finite(other - own)
