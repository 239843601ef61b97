"""The update loop of one rank: update, look, save, ask.

What happens after an update, in this order: its row; an evaluation and the monitors at their cadence; the early
stop rule; a save at its cadence, at the loss window, at a stop, or at the end; the directive's answer. A commit
therefore always holds the counters of the evaluation at its own update.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from raykit import history
from raykit.data.order import Order
from raykit.errors import GateError
from raykit.plan import Plan
from raykit.records import Cause, EndReason, EvaluationRow, MonitorRow, Row
from raykit.train.build import Built
from raykit.train.evaluate import evaluate, metric_of, monitor
from raykit.train.gang import Gang
from raykit.train.learning import require_finite
from raykit.train.loader import Keyed
from raykit.train.looking import looking
from raykit.train.recipe import Recipe
from raykit.train.rows import Figures, term_rows
from raykit.train.saver import Reason
from raykit.train.state import Live
from raykit.train.step import Asked, Stepper
from raykit.train.watching import Watching


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the loop ended, at which update."""

    reason: EndReason
    update: int
    detail: str | None = None
    cause: Cause | None = None
    remedy: str | None = None


class Saves(Protocol):
    """What is done with the live objects where a checkpoint is due: `raykit.train.saver.Saver`, or a comparison."""

    def save(self, live: Live, reason: Reason) -> None:
        """Take them as they stand."""
        ...

    def drain(self) -> None:
        """Wait until nothing is in flight."""
        ...

    def check(self) -> None:
        """Raise what has stopped a save, if something did."""
        ...


class Keeps(Protocol):
    """What takes the rows: `raykit.train.rows.Rows`, or memory."""

    def add(self, figures: Figures) -> None:
        """Take one update's figures."""
        ...

    def add_row(self, row: EvaluationRow | MonitorRow) -> None:
        """Take a row of another series."""
        ...

    def check(self) -> None:
        """Raise what has stopped the writer, if something did."""
        ...


class Says(Protocol):
    """What says when to save and to stop: `raykit.train.directive.Directive`, or what was so in the run."""

    why: str | None
    reason: EndReason
    cause: Cause | None

    def ask(self) -> Asked:
        """What this rank wants after the update in hand."""
        ...

    def working(self) -> None:
        """Productive time begins."""
        ...

    def saved(self) -> None:
        """A save has begun."""
        ...


@dataclass(slots=True, kw_only=True)
class Loop:
    """Everything that the loop works with. `rows` and `watch` are there on rank 0 only."""

    plan: Plan
    recipe: Recipe
    gang: Gang
    built: Built
    attempt: int
    begins: bool
    """Whether the run begins here. A resume from update 0 has its evaluation and its commit there already."""
    saver: Saves
    rows: Keeps | None
    watch: Watching | None
    directive: Says
    micro_batches: Iterator[Any]
    development: Keyed | None
    first_batch: Callable[[], Any]
    """A fixed batch of this rank for the monitors."""
    replay_at: int | None = None
    """Behind which update training waits for a replay; None for none."""
    replay: Callable[[], None] = lambda: None

    def run(self) -> Ending:
        """Train from where the live objects stand to the end, or to a stop.

        Raises:
            GateError: a loss or gradient is not finite, or the recipe breaks its own contract.
            RaykitError: whatever stopped a save or the history writer.
        """
        plan, progress = self.plan.run, self.built.live.progress
        if self.begins:
            self.look(0, time.perf_counter())
            self.save("start")
        if progress.update >= plan.updates or self._stops_early():
            return self._completed()  # resumed from the last commit of a run that could not say so
        stepper = Stepper(self.plan, self.recipe, self.built, self.gang)
        self.directive.working()
        start = time.perf_counter()
        for update in range(progress.update + 1, plan.updates + 1):
            figures, asked = stepper.update(
                update, self.micro_batches, self.directive.ask(), time.perf_counter() - start
            )
            self._record(figures)
            if update % plan.evaluate_every == 0 or update == plan.updates:
                self.look(update, start)
            last = update == plan.updates or self._stops_early()
            reason = self._save_reason(update, last, asked)
            if reason is not None:
                stepper.look_closer()
                self.save(reason)
            if last:
                return self._completed()
            if asked.stop:
                self.saver.drain()
                why = self.directive.why or "another rank was told to stop"
                return Ending(
                    reason=self.directive.reason, update=update, detail=why, cause=self.directive.cause
                )
            if update == self.replay_at:
                self.saver.drain()
                self.replay()
        raise AssertionError("the last update ends the run")

    def _completed(self) -> Ending:
        self.saver.drain()
        update = self.built.live.progress.update
        self.gang.all_agree(lambda: require_finite(self.built.live.model, update))
        return Ending(
            reason="completed", update=update, detail="early stop" if update < self.plan.run.updates else None
        )

    def _stops_early(self) -> bool:
        """Whether the evaluations so far, which every checkpoint counts, end the run by the plan's rule."""
        rule = self.plan.run.stopping
        return rule is not None and self.built.live.progress.patience.waited >= rule.patience

    def _record(self, figures: Figures) -> None:
        self.saver.check()
        if self.rows is not None:
            self.rows.add(figures)
            self.rows.check()
        if figures.nonfinite:
            # A save that is under way is of good state, and worth having; on every rank, so that all end together.
            self.gang.all_agree(self.saver.drain)
            raise GateError(
                f"update {figures.update}: {', '.join(figures.nonfinite)} is not finite",
                field="recipe.losses",
                rule="every term and the gradient norm are finite",
                remedy="look at the batch: `raykit history --last 20` shows the updates before it",
            )

    def _save_reason(self, update: int, last: bool, asked: Asked) -> Reason | None:
        if last:
            return "final"
        if asked.stop:
            return "stop"
        if update % self.plan.run.checkpoint_every == 0:
            return "cadence"
        return "loss-window" if asked.save else None

    def save(self, reason: Reason) -> None:
        """Start a save of the live objects as they stand."""
        self.saver.save(self.built.live, reason)
        if self.watch is not None:
            self.watch.at_save()
        self.directive.saved()

    def look(self, update: int, start: float) -> None:
        """Evaluate and monitor, with what a commit now would hold; nothing is written of what turns out to be void."""
        elapsed_s = round(time.perf_counter() - start, 3)
        plan, built, gang, development = self.plan, self.built, self.gang, self.development
        metrics: dict[str, float | None] = {}
        counts: dict[str, int] = {}
        with gang.with_buffers_of_leader(built.live.model), looking(self.recipe, built.live.model) as asked:
            fields = monitor(plan, asked, built, gang, self.first_batch, update)
            if development is not None:
                metrics, counts = evaluate(plan, asked, built, gang, development, update)
        if fields and self.rows is not None:
            row = MonitorRow(attempt=self.attempt, update=update, fields=fields, elapsed_s=elapsed_s)
            self.rows.add_row(row)
        if development is None:
            return
        best = self._weigh(metrics, update)
        if self.rows is not None:
            self.rows.add_row(
                EvaluationRow(
                    attempt=self.attempt,
                    update=update,
                    rows=len(development),
                    metrics=metrics,
                    elapsed_s=elapsed_s,
                    best=best,
                    counts=counts or None,
                )
            )

    def _weigh(self, metrics: Mapping[str, float | None], update: int) -> bool:
        """Move the counters of the stop rule, or of the selection if there is none; True at a new best."""
        rule, chosen = self.plan.run.stopping, self.plan.run.selection
        if chosen is not None:
            metric_of(
                metrics, chosen.metric
            )  # a metric that nothing reports ends the run at update 0, not at the end
        watched = rule or chosen
        if watched is None:
            return False
        progress = self.built.live.progress
        progress.patience = progress.patience.after(
            metric_of(metrics, watched.metric),
            update,
            min_delta=rule.min_delta if rule is not None else 0.0,
            mode=watched.mode,
        )
        return progress.patience.best_update == update and progress.patience.waited == 0


def row_maker(plan: Plan, order: Order, sources: list[int] | None, attempt: int) -> Callable[[Figures], Row]:
    """Makes rows of figures. Coverage of sources is worked out here, on the writer's thread.

    `sources` gives the source of each training row; None where there is only one.
    """

    def make(figures: Figures) -> Row:
        terms = term_rows(figures, history.term_row)
        first, last = (figures.update - 1) * plan.run.batch, figures.update * plan.run.batch
        contributions = [term.contribution for term in terms.values()]
        # As declared: a term whose scale is zero in this update is still the main one.
        main = next((term[0] for term in figures.terms if term[-1] is None), None)
        return Row(
            attempt=attempt,
            update=figures.update,
            epoch=first // order.rows,
            samples=(first, last),
            sources=_coverage(plan, order, sources, figures.update),
            loss=None
            if None in contributions
            else history.finite(sum(c for c in contributions if c is not None)),
            ratio=None if main is None else terms[main].ratio,
            terms=terms,
            lr=figures.lr,
            grad_norm=history.finite(figures.grad_norm),
            clipped=figures.clipped,
            elapsed_s=round(figures.elapsed_s, 6),
            scale=figures.scale,
            skipped=figures.skipped or None,
            nonfinite=tuple(figures.nonfinite) or None,
        )

    return make


def _coverage(plan: Plan, order: Order, sources: list[int] | None, update: int) -> dict[str, int]:
    if sources is None:
        return {"0": plan.run.batch}
    counts: dict[str, int] = {}
    for row in order.batch(update, plan.run.batch).indices.tolist():
        name = str(sources[row])
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
