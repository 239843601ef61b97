"""The charts of a search: what is drawn of which row, on which axes, and that no picture is worth a search.

covers TUNE-06 TUNE-13
"""

from __future__ import annotations

import io
import itertools
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from makesearch import SearchMaker, make_going, make_search
from PIL import Image

from raykit.errors import StoreUnavailableError
from raykit.read.search import RowRead, SearchRead, read_search
from raykit.report import drawing, search_charts, search_rows
from raykit.report.search_charts import (
    COST,
    PARAMETERS,
    TRIALS,
    cost_figure,
    pareto,
    put_search_pictures,
    search_figures,
    trials_figure,
)
from raykit.report.search_parameters import MOST_PANELS, parameters_figure
from raykit.store import layout
from raykit.testing.memory import MemoryStore


@pytest.fixture(scope="module")
def over() -> SearchRead:
    """A search that is over."""
    maker = make_search(MemoryStore())
    found = read_search(maker.store, maker.experiment, now=maker.at)
    assert found is not None
    return found


def lines(axes: Any) -> dict[str, Any]:
    """What is drawn on axes, by its label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def points(axes: Any, label: str) -> list[tuple[float, float]]:
    line = lines(axes)[label]
    return list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))


def texts(figure: Any) -> str:
    """Everything that is written on a figure."""
    found = [text.get_text() for text in figure.texts]
    found += [legend.get_text() for axes in figure.axes for legend in _legend(axes)]
    return " | ".join(found)


def _legend(axes: Any) -> list[Any]:
    made = axes.get_legend()
    return [] if made is None else list(made.get_texts())


# --- in order of start --------------------------------------------------------------------------------------


def test_every_row_that_began_is_drawn_where_it_began_by_how_it_ended(over: SearchRead) -> None:
    # covers TUNE-06
    figure = trials_figure(over)
    axes = figure.axes[0]
    order = [row.row for row in sorted(over.rows, key=lambda row: row.begun_at or math.inf) if row.begun_at]
    completed = points(axes, "completed (6)")
    assert [order[int(x) - 1] for x, _ in completed] == [1, 2, 4, 6, 9, 10]
    assert dict(completed)[1.0] == over.row(1).value
    stopped = points(axes, "stopped by the scheduler (2)")
    assert {order[int(x) - 1] for x, _ in stopped} == {3, 7}
    crosses = lines(axes)["without a value (2)"]
    assert {order[int(x) - 1] for x in crosses.get_xdata()} == {5, 8}, "failed, and not finite"
    assert points(axes, "picked") == [(float(order.index(4) + 1), over.row(4).value)]
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        *map(str, order[:-2]),
        "9\n= 4",
        "10\n= 4",
    ]
    assert "2 rows never began" in texts(figure)


def test_the_best_so_far_only_falls_and_only_completed_rows_count(over: SearchRead) -> None:
    best = lines(trials_figure(over).axes[0])["best so far"].get_ydata()
    assert list(best) == sorted(best, reverse=True)
    assert best[0] == over.row(1).value and best[-1] == over.row(4).value


def test_incumbent_worthwhile_and_no_skill_are_said(over: SearchRead) -> None:
    figure = trials_figure(over)
    said = texts(figure)
    assert "incumbent, row 1" in said and "less than worthwhile" in said
    assert "no skill is 1.0, above this picture" in said
    high = replace(over, rows=tuple(replace(row, value=row.value and row.value * 3) for row in over.rows))
    assert "no skill: 1.0" in texts(trials_figure(high)), "in view"
    noisy = replace(over, verdict=replace(over.verdict, noise=1.0)) if over.verdict else over
    assert "INSIDE THE NOISE" in texts(trials_figure(noisy))


def test_before_a_value_is_reported_one_sentence_is_drawn() -> None:
    maker = SearchMaker(MemoryStore())
    maker.register()
    found = read_search(maker.store, maker.experiment, now=maker.at)
    assert found is not None and list(search_figures(found)) == [], "nothing has begun"
    begun = replace(
        found, rows=tuple(replace(row, begun_at=1.0, attempts=1, status="running") for row in found.rows)
    )
    for _, draw in search_figures(begun):
        figure = draw()
        assert [text.get_text() for axes in figure.axes for text in axes.texts] == [
            "no row has reported a value yet"
        ]


def test_one_value_far_from_the_rest_is_an_arrow_and_presses_nothing_together(over: SearchRead) -> None:
    worst = over.row(3)
    rows = tuple(replace(row, value=30.0) if row.row == worst.row else row for row in over.rows)
    far = replace(over, rows=rows)
    for draw in (trials_figure, cost_figure):
        axes = draw(far).axes[0]
        others = [row.value for row in rows if row.value is not None and row is not rows[worst.row - 1]]
        assert axes.get_ylim()[1] < 1.2 * max(others), "of what is left"
        assert axes.get_yscale() == "linear"
        (at,) = points(axes, "beyond the picture (1)")
        assert 0.9 < at[1] < 1.0, "at the edge"
        arrow = lines(axes)["beyond the picture (1)"]
        assert arrow.get_markerfacecolor() == "white", "only what can be picked is full"
        assert "30" in [text.get_text() for text in axes.texts], "with its value"
        assert "stopped by the scheduler (2)" in lines(axes), "it is counted with the others"
    most = replace(far, registration=far.registration.model_copy(update={"mode": "max"}))
    assert "beyond the picture (1)" not in lines(trials_figure(most).axes[0]), "there it is the best"


def test_labels_of_what_is_far_never_lie_on_another(over: SearchRead) -> None:
    """Each beside its own arrow, if need be on a line below; without room there is only the arrow."""
    axes = parameters_figure(over).axes[0]
    width_pt = axes.get_window_extent().width * 72 / axes.figure.dpi
    low, high = map(math.log, axes.get_xlim())
    for gap_pt in (0.0, 5.0, 20.0, 50.0):
        across_pt = {row: width_pt / 4 + row * gap_pt for row in range(1, 5)}
        at = {row: math.exp(low + (high - low) * x / width_pt) for row, x in across_pt.items()}
        found = search_rows._apart(axes, at, dict.fromkeys(at, "0.449"))
        assert len(found) == 4, gap_pt
        lefts = [(line, across_pt[row] - 42.0 * (side < 0)) for row, (side, line) in found.items()]
        for (line, left), (other, beside) in itertools.combinations(lefts, 2):
            assert line != other or abs(left - beside) > 30.0, "room for five characters"


# --- cost and parameters ------------------------------------------------------------------------------------


def test_cost_is_that_of_all_attempts_and_its_front_is_what_nothing_beats(over: SearchRead) -> None:
    # covers TUNE-13
    axes = cost_figure(over).axes[0]
    assert axes.get_xlabel() == "cost of all attempts of a row: US dollars"
    assert {x for x, _ in points(axes, "completed (6)")} == {1.196}
    cheap = replace(over.row(1), cost=100)
    front = pareto(over, [cheap, *(row for row in over.rows[1:] if row.counts)], lambda row: float(row.cost))
    assert [row.row for row in front] == [1, 4], "the cheapest, then the best"


def test_where_nothing_is_billed_the_time_is_what_it_took() -> None:
    maker = make_going(MemoryStore(), rate="0")
    found = read_search(maker.store, maker.experiment, now=maker.at)
    assert found is not None
    axes = cost_figure(found).axes[0]
    assert axes.get_xlabel().endswith("accelerator-minutes, not billed")
    assert {round(x) for x, _ in points(axes, "completed (2)")} == {24}


def test_a_panel_for_each_parameter_logarithmic_where_its_space_is(over: SearchRead) -> None:
    figure = parameters_figure(over)
    panels = [axes for axes in figure.axes if axes.get_xlabel()]
    assert [axes.get_xlabel() for axes in panels] == ["lr", "width"]
    rates, widths = panels
    assert rates.get_xscale() == "log" and widths.get_xscale() == "linear"
    low, high = rates.get_xlim()
    assert low < 1e-4 and high > 5e-2, "all of what may be tried, so that what was not is seen"
    assert [label.get_text() for label in widths.get_xticklabels()] == ["16", "32", "64"]
    assert rates.get_ylim() == widths.get_ylim()
    assert sorted(x for x, _ in points(rates, "completed (6)")) == sorted(
        row.params["lr"] for row in over.rows if row.counts and row.params
    )


def test_more_parameters_than_panels_are_named_below(over: SearchRead) -> None:
    draws = random.Random(3)
    names = [f"p{n}" for n in range(8)]
    rows = tuple(
        replace(row, params={name: draws.random() for name in names}) if row.attempts else row
        for row in over.rows
    )
    space = {name: {"uniform": [0.0, 1.0]} for name in names}
    found = replace(over, rows=rows, registration=over.registration.model_copy(update={"space": space}))
    figure = parameters_figure(found)
    assert len([axes for axes in figure.axes if axes.get_xlabel()]) == MOST_PANELS
    assert "not drawn: p6, p7" in texts(figure)


def test_names_that_look_like_markup_are_drawn_as_they_are(over: SearchRead) -> None:
    rows = tuple(
        replace(row, params={"$\\frac{a}{b}$": "$x^2$"}) if row.attempts else row for row in over.rows
    )
    space = {"$\\frac{a}{b}$": {"choice": ["$x^2$", "_hidden"]}}
    found = replace(over, rows=rows, registration=over.registration.model_copy(update={"space": space}))
    assert drawing.png(parameters_figure(found)).startswith(b"\x89PNG")


@pytest.mark.parametrize("count", [1, 300, 3000])
def test_any_number_of_rows_is_a_picture_of_one_size(over: SearchRead, count: int) -> None:
    draws = random.Random(7)
    rows = tuple(
        RowRead(
            row=n,
            run=f"trial-{n:03d}",
            kind="trial",
            seed=1,
            params={"lr": 10 ** draws.uniform(-4, -2), "width": 32},
            status=draws.choice(("completed", "failed", "stopped-by-scheduler", "running")),
            value=draws.choice((None, 0.3, draws.random())) if n > 1 else 0.3,
            cost=n,
            attempts=1,
            begun_at=float(n),
        )
        for n in range(1, count + 1)
    )
    found = replace(over, rows=rows, picked=None, verdict=None, incumbent=None)
    for file, draw in search_figures(found):
        picture = np.asarray(Image.open(io.BytesIO(drawing.png(draw()))))
        assert picture.shape[1] == drawing.WIDTH_PX, file


# --- in the store -------------------------------------------------------------------------------------------


def test_all_three_are_kept_where_they_are_derived_and_equal_searches_give_equal_bytes() -> None:
    maker = make_search(MemoryStore())
    found = read_search(maker.store, maker.experiment, now=maker.at)
    assert found is not None
    drawn = put_search_pictures(maker.store, found)
    assert [key.rpartition("/")[2] for key in drawn] == [TRIALS, COST, PARAMETERS]
    for key, picture in drawn.items():
        known = layout.known(key)
        assert known is not None and known.kind == "search-picture" and known.kind in layout.DERIVED
        assert maker.store.get(key) == picture
    assert put_search_pictures(MemoryStore(), found) == drawn


def test_what_cannot_be_kept_or_drawn_is_said_and_stops_nothing(
    over: SearchRead, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    store = MemoryStore()

    def full(key: str, data: Any) -> None:
        raise StoreUnavailableError("no space left")

    monkeypatch.setattr(store, "put_derived", full)
    drawn = put_search_pictures(store, over, say=said.append)
    assert len(drawn) == 3 and len(said) == 3 and "no space left" in said[0]

    def broken(read: SearchRead) -> Any:
        raise ValueError("a glyph")

    monkeypatch.setattr(search_charts, "trials_figure", broken)
    said.clear()
    assert len(put_search_pictures(MemoryStore(), over, say=said.append)) == 2
    assert said == ["trials.png could not be drawn or kept: a glyph"]
