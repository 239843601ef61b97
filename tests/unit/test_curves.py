"""Pictures of a run: what is in them, what is not, and that they can be drawn from any history."""

from __future__ import annotations

import io
import itertools
import math
import random
import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from raykit import history
from raykit.plan.tables import FieldBounds
from raykit.records import EvaluationRow, FieldStats, MonitorRow, Row, TermRow
from raykit.report import curves, drawing

LATENT = FieldBounds(space="log", low=5.0, high=95.0, collapse=0.2)


def recon(ratio: float | None) -> TermRow:
    return history.term_row(
        value=math.nan if ratio is None else ratio * 0.5, weight=1.0, elements=64, target_ms=0.5
    )


def kl() -> TermRow:
    return history.term_row(value=1.5, weight=0.1, elements=8, no_reference="a distance")


def make_row(update: int, terms: dict[str, TermRow], attempt: int = 1) -> Row:
    return Row(
        attempt=attempt,
        update=update,
        epoch=0,
        samples=((update - 1) * 4, update * 4),
        sources={},
        loss=1.0,
        terms=terms,
        lr=(1e-3,),
        grad_norm=1.0,
        clipped=False,
        elapsed_s=0.1,
    )


def make_rows(ratios: Sequence[float | None], *, attempts: Sequence[int] = ()) -> list[Row]:
    """One row per ratio; another attempt starts at each update of `attempts`."""
    return [
        make_row(update, {"recon": recon(ratio), "kl": kl()}, 1 + sum(update >= start for start in attempts))
        for update, ratio in enumerate(ratios, 1)
    ]


def evaluation(update: int, metrics: dict[str, float | None], *, best: bool = False) -> EvaluationRow:
    return EvaluationRow(attempt=1, update=update, rows=270, metrics=metrics, elapsed_s=0.1, best=best)


def monitor(update: int, stats: FieldStats) -> MonitorRow:
    return MonitorRow(attempt=1, update=update, fields={"latent": stats}, elapsed_s=0.1)


def stats_of(values: Sequence[float], reference: float | None) -> FieldStats:
    return history.field_stats(
        values, space="log", low=5.0, high=95.0, collapse=0.2, reference_spread=reference
    )


def falling(number: int) -> list[float]:
    return [0.1 + 1.1 * math.exp(-5 * n / number) for n in range(number)]


def ratio_axes(rows: Sequence[Row], evaluations: Sequence[EvaluationRow] = (), decay: float = 0.9) -> Any:
    (axes,) = curves.ratio_figure(rows, evaluations, title="a run", smooth_decay=decay).axes
    return axes


def line_named(axes: Any, start: str) -> Any:
    (found,) = [line for line in axes.lines if line.get_label().startswith(start)]
    return found


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return imread(io.BytesIO(data), format="png")


def chunks(data: bytes) -> list[bytes]:
    """The types of a PNG's chunks, whose checksums are compared on the way."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = [], 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        body = data[at + 4 : at + 8 + size]
        assert zlib.crc32(body) == struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]
        found.append(body[:4])
        at += 12 + size
    return found


# --- training -----------------------------------------------------------------------------------------------


def test_no_skill_is_a_labelled_line_at_one_and_in_view() -> None:
    # covers HIST-13
    axes = ratio_axes(make_rows([0.02, 0.019, 0.018]))  # far below, and it is in view all the same
    assert any(list(line.get_ydata()) == [1.0, 1.0] for line in axes.lines)
    (label,) = [text for text in axes.texts if text.get_text() == "no skill: 1.0"]
    assert label.xy[1] == 1.0
    low, high = axes.get_ylim()
    assert low < 0.018 and high > 1.0
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("update", "ratio to predicting zero")


def test_each_update_and_its_trend_are_drawn() -> None:
    # covers HIST-13, HIST-14
    ratios = falling(200)
    axes = ratio_axes(make_rows(ratios), decay=0.9)
    trend = line_named(axes, "recon: trend")
    assert trend.get_ydata() == pytest.approx(history.ema(ratios, 0.9))
    each = [line for line in axes.lines if line.get_alpha() and len(line.get_ydata()) == 200]
    assert [line.get_ydata() for line in each] == [pytest.approx(ratios)]
    assert each[0].get_linewidth() < trend.get_linewidth()
    assert "trend: ema 0.9, 9 updates behind" in legend_of(axes)  # the declared factor is in the picture


def test_a_trend_of_tens_of_percent_shows_through_noise() -> None:
    # covers HIST-14
    print("seed 3")
    noise = random.Random(3)
    ratios = [(1.0 - 0.3 * n / 4000) * noise.uniform(0.3, 1.7) for n in range(4000)]
    values = line_named(ratio_axes(make_rows(ratios), decay=0.99), "recon: trend").get_ydata()
    assert values[-50:].mean() < 0.85 * values[25:75].mean()


def test_a_term_without_a_scale_is_named_and_not_drawn() -> None:
    # covers HIST-10, HIST-11
    figure = curves.ratio_figure(make_rows([0.5, 0.4]), [], title="a run", smooth_decay=0.9)
    assert not any("kl" in text for text in legend_of(figure.axes[0]))
    assert figure.get_supxlabel() == "without such a scale and not drawn: kl"


def test_undefined_ratios_leave_gaps_and_are_counted() -> None:
    ratios: list[float | None] = [0.9, 0.8, None, None, 0.7, None, 0.6, 0.5]
    figure = curves.ratio_figure(make_rows(ratios), [], title="a run", smooth_decay=0.5)
    (axes,) = figure.axes
    undefined = [value is None for value in ratios]
    lines = [line for line in axes.lines if len(line.get_ydata()) == len(ratios)]
    assert len(lines) == 2  # each update, and the trend
    for line in lines:
        assert np.isnan(line.get_ydata()).tolist() == undefined
    drawn = np.concatenate([line.get_ydata() for line in axes.lines])
    assert 0.0 not in drawn
    dots = [line for line in axes.lines if list(line.get_xdata()) == [5.0]]
    assert len(dots) == 2 and all(line.get_marker() == "o" for line in dots)  # alone between two gaps
    assert "recon is undefined at 3 of 8 updates" in figure.get_supxlabel()


def test_a_run_whose_every_ratio_is_undefined_is_still_a_picture() -> None:
    figure = curves.ratio_figure(make_rows([None] * 5), [], title="a run", smooth_decay=0.9)
    assert "recon: trend undefined" in legend_of(figure.axes[0])
    assert "recon is undefined at 5 of 5 updates" in figure.get_supxlabel()
    drawing.png(figure)


def test_development_is_drawn_as_points_where_it_was_scored() -> None:
    rows = make_rows(falling(40))
    scored = [evaluation(0, {"ratio.recon": 1.2}), evaluation(20, {"ratio.recon": 0.5, "loss": 9.0})]
    axes = ratio_axes(rows, scored)
    (points,) = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata()) == 2]
    assert points.get_linestyle() == "None"
    assert (list(points.get_xdata()), list(points.get_ydata())) == ([0, 20], [1.2, 0.5])
    assert line_named(axes, "recon: trend").get_label().endswith("development 0.5")
    assert "development: 270 rows" in legend_of(axes)


def test_a_resumed_attempt_is_marked_where_it_took_over() -> None:
    axes = ratio_axes(make_rows(falling(100), attempts=(31, 61)))
    upright = [list(line.get_xdata()) for line in axes.lines if len(set(line.get_xdata())) == 1]
    assert upright == [[30.5, 30.5], [60.5, 60.5]]
    assert [text.get_text() for text in axes.texts if text.get_text().isdigit()] == ["2", "3"]
    assert "resumed: attempt's number above" in legend_of(axes)


def test_numbers_of_many_attempts_do_not_cover_each_other() -> None:
    figure = curves.ratio_figure(
        make_rows(falling(300), attempts=range(100, 300, 2)), [], title="a run", smooth_decay=0.9
    )
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text().isdigit()]
    assert len(boxes) > 10
    assert all(before.x1 < after.x0 for before, after in itertools.pairwise(boxes))


@pytest.mark.parametrize(
    ("ratios", "scale"),
    [
        ([1.1, 0.9, 0.8], "linear"),
        ([1.2, 0.3, 0.05], "log"),
        ([900.0, 2.0, 0.9], "log"),
        ([1.2, 0.3, 0.0], "linear"),  # a perfect fit has no logarithm
    ],
)
def test_the_axis_is_logarithmic_only_where_the_range_needs_it(ratios: list[float], scale: str) -> None:
    axes = ratio_axes(make_rows(ratios))
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    assert low <= min(ratios) and high >= max(ratios)


@pytest.mark.parametrize("scores", [[], [None, None]], ids=["no evaluation", "undefined ones"])
def test_the_axes_fill_the_picture_before_anything_is_evaluated(scores: list[float | None]) -> None:
    evaluations = [evaluation(n, {"ratio.recon": score}) for n, score in enumerate(scores)]
    figure = curves.ratio_figure(make_rows([0.9, 0.8]), evaluations, title="a run", smooth_decay=0.9)
    figure.canvas.draw()
    box = figure.axes[0].get_position()
    assert box.x0 < 0.08 and box.x1 > 0.88 and box.y0 < 0.16 and box.y1 > 0.75


def test_several_terms_have_colours_of_their_own() -> None:
    cross_entropy = history.term_row(value=2.0, weight=1.0, elements=64, reference=math.log(256))
    rows = [make_row(n, {"recon": recon(0.5), "next": cross_entropy}) for n in (1, 2, 3)]
    axes = ratio_axes(rows)
    first, second = line_named(axes, "recon:"), line_named(axes, "next:")
    assert first.get_color() != second.get_color()
    assert second.get_ydata() == pytest.approx([2.0 / math.log(256)] * 3)


# --- drawing at all -----------------------------------------------------------------------------------------


def test_a_png_of_the_declared_size_with_nothing_of_its_time_or_maker_in_it() -> None:
    rows, scored = make_rows(falling(50), attempts=(20,)), [evaluation(0, {"ratio.recon": 1.1})]
    data = curves.draw_ratio(rows, scored, title="a run", smooth_decay=0.9)
    assert pixels(data).shape[:2] == (drawing.HEIGHT_PX, drawing.WIDTH_PX)
    assert set(chunks(data)) <= {b"IHDR", b"pHYs", b"IDAT", b"IEND"}
    assert curves.draw_ratio(rows, scored, title="a run", smooth_decay=0.9) == data


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_first_updates_are_visible(number: int) -> None:
    ratios = [0.5] * number
    without = pixels(curves.draw_ratio(make_rows([None] * number), [], title="", smooth_decay=0.9))
    drawn = pixels(curves.draw_ratio(make_rows(ratios), [], title="", smooth_decay=0.9))
    coloured = [(np.ptp(image[200:700, 120:1270, :3], axis=2) > 0.3).sum() for image in (without, drawn)]
    assert coloured[0] == 0 and coloured[1] > 10


def test_nothing_yet_is_said_in_words() -> None:
    def words(figure: Any) -> list[str]:
        drawing.png(figure)
        return [text.get_text() for text in figure.axes[0].texts]

    assert words(curves.ratio_figure([], [], title="a", smooth_decay=0.9)) == ["no update is recorded yet"]
    only_kl = [make_row(1, {"kl": kl()})]
    assert words(curves.ratio_figure(only_kl, [], title="a", smooth_decay=0.9)) == [
        "no term of this run has a scale"
    ]
    assert words(curves.development_figure([], title="a")) == ["nothing is evaluated yet"]
    assert words(curves.development_figure([evaluation(0, {"loss": 1.0})], title="a")) == [
        "neither a ratio nor what selects is recorded"
    ]
    assert words(curves.fields_figure([], title="a", declared={"latent": LATENT})) == [
        "no field is monitored yet"
    ]


def test_names_are_drawn_as_they_are() -> None:
    rows = [make_row(1, {"_cost_$x^{$": recon(0.5), "a" * 60: recon(0.4), "$\\bad$": kl()})]
    figure = curves.ratio_figure(rows, [], title="$\\also{$ bad", smooth_decay=0.9)
    drawing.png(figure)
    assert legend_of(figure.axes[0])[0] == " _cost_$x^{$: trend 0.5"
    assert legend_of(figure.axes[0])[1] == "a" * 22 + "..: trend 0.4"


def test_the_words_of_a_picture_cover_nothing() -> None:
    scored = [evaluation(n, {"ratio.recon": 1.1, "ratio.next": 1.0}) for n in (0, 50)]
    scale = history.term_row(value=5.5, weight=1.0, elements=64, reference=5.5)
    rows = [make_row(n, {"recon": recon(1.0), "next": scale, "kl": kl()}, 1 + n // 40) for n in range(1, 101)]
    figure = curves.ratio_figure(rows, scored, title="a run", smooth_decay=0.9)
    figure.canvas.draw()
    (axes,) = figure.axes
    inside = axes.get_window_extent()
    legend = axes.get_legend().get_window_extent()
    texts = [text.get_window_extent() for text in axes.texts]
    page = figure.bbox
    words = [legend, *texts, figure._suptitle.get_window_extent(), figure._supxlabel.get_window_extent()]
    for number, box in enumerate(words):
        assert page.contains(*box.min) and page.contains(*box.max)
        assert not box.overlaps(inside)
        assert not any(box.overlaps(other) for other in words[number + 1 :])


# --- long histories -----------------------------------------------------------------------------------------


def test_thinning_keeps_every_extreme_and_every_mean() -> None:
    print("seed 11")
    values = np.random.default_rng(11).normal(1.0, 0.1, 100_000)
    values[[777, 50_000]] = 40.0, -3.0
    at = np.arange(1, 100_001, dtype=np.float64)
    bins = drawing.thin(at, values)
    assert len(bins.at) <= drawing.BINS and bins.size == math.ceil(100_000 / drawing.BINS)
    assert (bins.low.min(), bins.high.max()) == (-3.0, 40.0)
    assert bins.mean[0] == pytest.approx(values[: bins.size].mean())
    counts = np.diff([*range(0, 100_000, bins.size), 100_000])
    assert float((bins.mean * counts).sum()) == pytest.approx(values.sum())
    assert bins.at[-1] == pytest.approx(at[-counts[-1] :].mean())  # the last bin is a smaller one


def test_thinning_leaves_a_gap_only_where_nothing_is_defined() -> None:
    values = np.full(10_000, 0.5)
    values[2000:4000] = np.nan
    values[5000] = np.nan
    bins = drawing.thin(np.arange(10_000, dtype=np.float64), values)
    empty = np.isnan(bins.mean)
    assert (
        empty.any()
        and np.array_equal(empty, np.isnan(bins.low))
        and np.array_equal(empty, np.isnan(bins.high))
    )
    assert bins.at[empty].min() >= 2000 and bins.at[empty].max() < 4000
    assert np.unique(bins.mean[~empty]).tolist() == [0.5]  # an undefined value is not a zero in a mean


def test_a_hundred_thousand_updates_are_drawn_quickly_and_with_their_spike() -> None:
    ratios = falling(100_000)
    ratios[70_000] = 30.0
    one = make_row(1, {"recon": recon(0.5)})
    terms = [one.terms["recon"].model_copy(update={"ratio": ratio}) for ratio in ratios]
    rows = [one.model_copy(update={"update": n, "terms": {"recon": term}}) for n, term in enumerate(terms, 1)]
    start = time.process_time()
    figure = curves.ratio_figure(rows, [], title="a run", smooth_decay=0.999)
    drawing.png(figure)
    took_s = time.process_time() - start
    print(f"{took_s:.2f} s of CPU time")
    (axes,) = figure.axes
    assert max(len(line.get_xdata()) for line in axes.lines) <= drawing.BINS
    assert axes.get_ylim()[1] > 30.0
    assert "their least to greatest" in legend_of(axes)
    assert took_s < 30.0


# --- development --------------------------------------------------------------------------------------------


def test_development_has_a_picture_of_its_own_with_no_skill_and_the_best() -> None:
    # covers HIST-08, HIST-13
    scored = [
        evaluation(0, {"ratio": 1.2, "ratio.recon": 1.2, "loss": 7.0}, best=True),
        evaluation(100, {"ratio": 0.3, "ratio.recon": 0.3, "loss": 2.0}, best=True),
        evaluation(200, {"ratio": 0.4, "ratio.recon": 0.4, "loss": 3.0}),
    ]
    figure = curves.development_figure(scored, title="a run")
    (axes,) = figure.axes
    assert list(line_named(axes, "recon: last 0.4").get_ydata()) == [1.2, 0.3, 0.4]
    assert any(text.get_text() == "no skill: 1.0" for text in axes.texts)
    ring = line_named(axes, "best so far: 0.3 at update 100")
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([100], [0.3])
    assert not any(7.0 in line.get_ydata() for line in axes.lines)  # a loss in physical units is no evidence
    assert figure.get_supxlabel() == "270 rows of the development split"


def test_another_metric_that_selects_has_a_panel_without_no_skill() -> None:
    scored = [
        evaluation(n, {"ratio.recon": 0.5, "accuracy": n / 100, "mse": 1.0}, best=n < 60)
        for n in range(0, 101, 20)
    ]
    figure = curves.development_figure(scored, title="a run", metric="accuracy")
    above, below = figure.axes
    assert below.get_ylabel() == "accuracy"
    assert not any("no skill" in text.get_text() for text in below.texts)
    assert any("best so far: 0.4 at update 40" in text for text in legend_of(below))
    assert not any("best" in text or "mse" in text for text in legend_of(above))


def test_an_undefined_evaluation_is_a_gap_and_is_counted() -> None:
    values = [0.9, None, 0.5, None]
    scored = [evaluation(n, {"ratio.recon": value}) for n, value in enumerate(values)]
    figure = curves.development_figure(scored, title="a run")
    line = line_named(figure.axes[0], "recon: last 0.5")
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False, True]
    assert "ratio.recon is undefined at 2 of 4 evaluations" in figure.get_supxlabel()
    drawing.png(figure)


# --- fields -------------------------------------------------------------------------------------------------


def test_a_log_field_is_drawn_in_its_own_space_with_its_threshold() -> None:
    # covers QC-06, QC-08, QC-09
    first = stats_of([math.log(x) for x in (0.5, 1.0, 2.0)], None)
    narrow = stats_of([math.log(x) for x in (0.98, 1.0, 1.02)], first.spread)
    figure = curves.fields_figure(
        [monitor(0, first), monitor(100, narrow)], title="a run", declared={"latent": LATENT}
    )
    values, spreads = figure.axes
    assert values.get_yscale() == "log" and values.get_ylabel() == "latent, log space"
    assert list(line_named(values, "median").get_ydata()) == pytest.approx([1.0, 1.0])
    assert "5th to 95th percentile" in legend_of(values)
    low, high = values.get_ylim()
    assert 0.4 < low < 0.56 and 1.8 < high < 2.5
    assert list(line_named(spreads, "collapse: 0.2").get_ydata()) == [0.2, 0.2]
    crosses = line_named(spreads, "collapsed at 1 of 2")
    assert list(crosses.get_xdata()) == [100]
    assert list(crosses.get_ydata()) == pytest.approx([narrow.spread / first.spread])  # type: ignore[operator]


def test_a_linear_field_keeps_a_linear_axis() -> None:
    bounds = FieldBounds(space="linear", low=10.0, high=90.0, collapse=0.1)
    found = history.field_stats(
        [-3.0, 0.0, 5.0], space="linear", low=10.0, high=90.0, collapse=0.1, reference_spread=None
    )
    figure = curves.fields_figure([monitor(0, found)], title="a run", declared={"latent": bounds})
    assert figure.axes[0].get_yscale() == "linear"
    assert list(line_named(figure.axes[0], "median").get_ydata()) == [0.0]


@pytest.mark.parametrize(
    "values",
    [[math.nan, 1.0], [0.0, 0.0], [-800.0, 800.0]],
    ids=["not finite", "pinned", "beyond what a float holds"],
)
def test_a_broken_field_is_a_picture_and_says_so(values: list[float]) -> None:
    # covers QC-09
    found = stats_of(values, None)
    figure = curves.fields_figure([monitor(0, found)], title="a run", declared={"latent": LATENT})
    drawing.png(figure)
    assert any("collapsed at 1 of 1" in text for text in legend_of(figure.axes[1])) == found.collapsed


def test_every_declared_field_has_its_line_of_panels() -> None:
    found = stats_of([0.0, 1.0, 2.0], None)
    names = ("latent", "bias", "scale")
    row = MonitorRow(attempt=1, update=0, fields=dict.fromkeys(names, found), elapsed_s=0.1)
    data = curves.draw_fields([row], title="a run", declared=dict.fromkeys((*names, "absent"), LATENT))
    assert pixels(data).shape[0] == 3 * drawing.HEIGHT_PX // 2
