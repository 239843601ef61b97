"""Pictures of examinations: what is in them, what is never left out, and that none of them can end anything."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from makeqc import QcMaker, failed, make_trained
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from raykit.errors import StoreUnavailableError
from raykit.ids import sha256
from raykit.qc.backlog import Said, Standing, Status, Wanted
from raykit.read.qc import read_qc
from raykit.records import (
    FieldRule,
    FieldScore,
    FieldSpread,
    QcFinding,
    Receipt,
    Request,
    Roster,
    RosterUnit,
    Score,
    Suite,
    Tally,
)
from raykit.report import drawing, qc_charts, qc_series
from raykit.report.qc_files import SHEET, put_pictures
from raykit.report.qc_series import picture_file
from raykit.report.sheet import (
    MAX_COLUMNS,
    MAX_HEIGHT_PX,
    MAX_WIDTH_PX,
    Column,
    draw_sheet,
    names_of,
    row_spans,
    thinned,
)
from raykit.store import layout
from raykit.testing.memory import MemoryStore
from raykit.work import panels

A = "a" * 64


def make_suite(**given: Any) -> Suite:
    fields = {
        "fail": {"ratio": "> 0.35"},
        "fields": {"latent": FieldRule(space="log", low=5, high=95, collapse=0.2)},
        **given,
    }
    return Suite(
        experiment="digits",
        owner="ada",
        every=100,
        root="experiments/digits/qc",
        roster=A,
        code=A,
        config=A,
        revision=1,
        recipe="recipe:Digits",
        params={},
        seed=1,
        threads=1,
        deterministic=True,
        dtype="float32",
        autocast="none",
        **fields,
    )


SUITE = make_suite()


def score(value: float | None, strata: Mapping[str, float | None] | None = None, **given: Any) -> Score:
    return Score(value=value, strata=strata or {}, **{"no_skill": 1.0, "better": "less", **given})


def spread_of(spread: float, median: float = 0.0) -> FieldSpread:
    return FieldSpread(median=median, low=median - spread / 2, high=median + spread / 2, spread=spread)


def latent(spread: float, *, reference: float | None = 2.0, **given: Any) -> FieldScore:
    return FieldScore(
        space="log",
        pooled=spread_of(spread),
        strata={"0": spread_of(spread), "1": spread_of(spread, 0.1)},
        reference_spread=reference,
        between=1.0,
        within=0.5,
        finite=1.0,
        dimensions=8,
        **given,
    )


def waiting(update: int, status: Status = "pending", suite: Suite = SUITE) -> Standing:
    wanted = Wanted(update=update, checkpoint=sha256(f"{update}".encode()), key="k", since=0.0)
    request = Request(
        experiment="digits", run="main", update=update, checkpoint=wanted.checkpoint, suite=suite.digest
    )
    return Standing(wanted=wanted, request=request, said=Said(asked=True), status=status)


def done(
    update: int,
    metrics: Mapping[str, Score],
    *,
    fields: Mapping[str, FieldScore] | None = None,
    findings: Sequence[QcFinding] = (),
    unjudged: Sequence[str] = (),
    suite: Suite = SUITE,
) -> Standing:
    """A checkpoint that was examined."""
    bare = waiting(update, "done", suite)
    receipt = Receipt(
        request=bare.request.id,
        experiment="digits",
        run="main",
        update=update,
        checkpoint=bare.request.checkpoint,
        suite=suite.digest,
        roster=A,
        code=A,
        config=A,
        revision=1,
        facts={},
        units=Tally(requested=4, scored=4, failed=0, missing=0),
        strata={},
        metrics=metrics,
        fields=fields or {},
        unjudged=tuple(unjudged),
        findings=tuple(findings),
        verdict="failed" if findings else "passed",
    )
    return Standing(
        wanted=bare.wanted, request=bare.request, said=Said(asked=True, receipt=receipt), status="done"
    )


def ratios(*values: float | None, strata: int = 2) -> list[Standing]:
    """One checkpoint every 100 updates; stratum `n` scores a tenth of `n` more than all."""

    def by(value: float | None) -> dict[str, float | None]:
        return {str(n): None if value is None else value + n / 10 for n in range(strata)}

    return [
        done(100 * n, {"ratio": score(value, by(value))}, unjudged=() if n else ("ratio",))
        for n, value in enumerate(values)
    ]


def metric(standings: Sequence[Standing], name: str = "ratio", suite: Suite = SUITE) -> Any:
    series = qc_series.metric_series(qc_series.examined(standings), suite, name)
    return qc_charts.metric_figure(series, title="a run")


def field(standings: Sequence[Standing], suite: Suite = SUITE) -> Any:
    series = qc_series.field_series(qc_series.examined(standings), suite, "latent")
    return qc_charts.field_figure(series, title="a run")


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def line_named(axes: Any, start: str) -> Any:
    (found,) = [line for line in axes.lines if line.get_label().startswith(start)]
    return found


# --- metrics ------------------------------------------------------------------------------------------------


def test_a_metric_is_drawn_from_update_0_on_for_all_and_each_stratum() -> None:
    # covers QC-01, QC-03
    figure = metric(ratios(1.0, 0.3, 0.2))
    (axes,) = figure.axes
    whole = line_named(axes, "all: last 0.2")
    assert (list(whole.get_xdata()), list(whole.get_ydata())) == ([0, 100, 200], [1.0, 0.3, 0.2])
    assert list(line_named(axes, "1").get_ydata()) == pytest.approx([1.1, 0.4, 0.3])
    assert whole.get_linewidth() > line_named(axes, "1").get_linewidth()
    assert any(text.get_text() == "no skill: 1" for text in axes.texts)
    assert "not judged at update 0: the model had learned nothing yet" in figure.get_supxlabel()


@pytest.mark.parametrize(
    ("rule", "limit", "fails_above"), [("> 0.35", 0.35, True), ("< base + 0.2", 1.2, False)]
)
def test_the_threshold_is_a_line_whose_failing_side_is_shaded(
    rule: str, limit: float, fails_above: bool
) -> None:
    suite = make_suite(fail={"ratio": rule})
    (axes,) = metric(ratios(1.0, 0.3), suite=suite).axes
    line = line_named(axes, f"fails if {rule}")
    assert line.get_linestyle() == "--" and list(line.get_ydata()) == pytest.approx([limit] * 2)
    (shade,) = axes.patches
    box = shade.get_bbox()
    low, high = axes.get_ylim()
    expected = (limit, high) if fails_above else (low, limit)
    assert sorted((box.y0, box.y1)) == pytest.approx(expected)
    assert low < limit < high


def test_a_threshold_against_the_base_waits_for_update_0() -> None:
    suite = make_suite(fail={"ratio": "> base + 0.1"})
    figure = metric(ratios(1.0, 0.3)[1:], suite=suite)
    assert "> base + 0.1, has no base yet: update 0 is not examined" in figure.get_supxlabel()


def test_what_failed_has_a_cross_and_what_waits_is_on_the_axis() -> None:
    # covers QC-21, QC-23, QC-24, QC-27
    standings = [
        *ratios(1.0, 0.3),
        done(200, {"ratio": score(0.41)}, findings=[failed()]),
        done(300, {"ratio": score(0.2)}, findings=[failed("mse")]),
        waiting(400, "claimed"),
        waiting(500, "parked"),
    ]
    (axes,) = metric(standings).axes
    cross = line_named(axes, "failed: 1")
    assert (list(cross.get_xdata()), list(cross.get_ydata())) == ([200], [0.41])
    assert list(line_named(axes, "failed otherwise: 1").get_xdata()) == [300]
    circles = line_named(axes, "not examined: 2")
    assert (list(circles.get_xdata()), list(circles.get_ydata())) == ([400, 500], [0.0, 0.0])
    assert circles.get_markerfacecolor() == "white"
    assert axes.get_xlim()[1] >= 500
    assert list(line_named(axes, "all").get_xdata()) == [
        0,
        100,
        200,
        300,
    ]  # nothing where nothing was measured


def test_an_undefined_score_is_a_gap_and_is_counted() -> None:
    figure = metric(ratios(1.0, None, 0.2))
    line = line_named(figure.axes[0], "all: last 0.2")
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False]
    assert "ratio is undefined at 1 of 3 checkpoints" in figure.get_supxlabel()


def test_many_strata_are_a_band_with_the_worst_of_them() -> None:
    (axes,) = metric(ratios(1.0, 0.3, strata=40)).axes
    texts = legend_of(axes)
    assert "least to greatest of 40 strata" in texts and "worst now, 39: 4.2" in texts
    assert list(line_named(axes, "worst now").get_ydata()) == pytest.approx([4.9, 4.2])
    assert len(texts) <= 6


def test_of_a_metric_where_more_is_better_the_least_stratum_is_the_worst() -> None:
    strata = {str(n): n / 20 for n in range(12)}
    standings = [done(0, {"accuracy": score(0.5, strata, better="more", no_skill=0.1)})]
    suite = make_suite(fail={"accuracy": "< 0.2"})
    series = qc_series.metric_series(qc_series.examined(standings), suite, "accuracy")
    assert series.worst == "0"
    low, high = series.band
    assert (low[0], high[0]) == (0.0, 0.55)


def test_two_answers_to_one_question_are_drawn_as_failed() -> None:
    # covers QC-22
    from dataclasses import replace

    from raykit.records import Conflict

    (standing,) = ratios(0.3)
    conflict = Conflict(request=A, n=2, worker="qc-2", receipt=A, differs=("metrics",), other={})
    red = replace(standing, said=replace(standing.said, conflicts=(conflict,)))
    assert qc_series.examined([red]).failed.tolist() == [True]


# --- fields -------------------------------------------------------------------------------------------------


def test_a_collapsed_field_fails_though_its_ratio_is_good() -> None:
    # covers QC-06, QC-08, QC-09, GOLD-28
    collapsed = QcFinding(kind="collapsed", what="latent", found="spread 0.2", rule="at least 0.2 of it")
    standings = [
        done(0, {"ratio": score(1.0)}, fields={"latent": latent(2.0, reference=None)}),
        done(100, {"ratio": score(0.2)}, fields={"latent": latent(0.2)}, findings=[collapsed]),
    ]
    figure = field(standings)
    values, spreads = figure.axes
    assert values.get_yscale() == "log"
    assert list(line_named(values, "median").get_ydata()) == pytest.approx([1.0, 1.0])
    low, high = values.get_ylim()
    assert low < math.exp(-1) and high > math.exp(1)
    assert "5th to 95th percentile" in legend_of(values)
    assert list(line_named(spreads, "all").get_ydata()) == pytest.approx([1.0, 0.1])
    assert list(line_named(spreads, "collapse: 0.2").get_ydata()) == [0.2, 0.2]
    cross = line_named(spreads, "failed: 1")
    assert (list(cross.get_xdata()), list(cross.get_ydata())) == ([100], pytest.approx([0.1]))
    assert "collapsed at update 100" in figure.get_supxlabel()
    (axes,) = metric(standings).axes
    assert list(line_named(axes, "failed otherwise: 1").get_xdata()) == [100]


def test_dead_dimensions_bounds_and_use_are_said() -> None:
    # covers QC-07
    suite = make_suite(
        fields={"latent": FieldRule(space="log", low=5, high=95, collapse=0.2, occupancy=0.3, used=0.02)}
    )
    seen = latent(1.9, dead=(3, 5), at_low=0.031, at_high=0.2, rise_permuted=0.45)
    notes = field(
        [done(0, {}, fields={"latent": latent(2.0, reference=None)}), done(100, {}, fields={"latent": seen})],
        suite,
    ).get_supxlabel()
    assert "dead at update 100: dimensions 3, 5" in notes.replace("\n", " ")
    assert "20.0% of its values at one end of its range" in notes.replace("\n", " ")
    assert "raises the ratio by 0.45, last (at least 0.02 wanted)" in notes.replace("\n", " ")


@pytest.mark.parametrize("spread", [0.0, 1e300], ids=["constant from the start", "beyond any scale"])
def test_a_broken_field_is_still_a_picture(spread: float) -> None:
    seen = latent(spread, reference=None)
    assert drawing.png(field([done(0, {}, fields={"latent": seen}), waiting(100)])).startswith(b"\x89PNG")


def test_a_field_and_a_metric_of_one_name_fail_apart() -> None:
    rise = QcFinding(kind="threshold", what="latent", found="2", rule="fails if > 1")
    dead = QcFinding(kind="dead-dimension", what="latent", found="1 of 8", rule="each")
    standings = [
        done(0, {"latent": score(2.0)}, fields={"latent": latent(2.0)}, findings=[rise]),
        done(100, {"latent": score(0.5)}, fields={"latent": latent(2.0)}, findings=[dead]),
    ]
    found = qc_series.examined(standings)
    suite = make_suite(fail={"latent": "> 1"})
    assert qc_series.metric_series(found, suite, "latent").failed.tolist() == [True, False]
    assert qc_series.field_series(found, suite, "latent").failed.tolist() == [False, True]


# --- all of them, and their files ---------------------------------------------------------------------------


def test_every_metric_and_field_has_a_picture_and_equal_receipts_equal_bytes() -> None:
    standings = [
        done(0, {"ratio": score(1.0), "mse": score(0.3)}, fields={"latent": latent(2.0, reference=None)})
    ]
    drawn = qc_charts.draw_qc(standings, SUITE, title="a run")
    assert sorted(drawn) == ["qc-field-latent.png", "qc-mse.png", "qc-ratio.png"]
    for data in drawn.values():
        assert Image.open(io.BytesIO(data)).width == drawing.WIDTH_PX
    assert qc_charts.draw_qc(standings, SUITE, title="a run") == drawn
    assert qc_charts.draw_qc([waiting(0)], SUITE, title="a run") == {}


NAMES = [
    *("ratio", "Ratio", "RATIO", "lm-eval:arc_easy", "lm-eval/arc_easy", "../../etc/passwd", "a b", "a  b"),
    *("", ".", "..", "<script>", "\u202egnp.", "x" * 61, "x" * 200, "\U0001f4a5", "field-latent", "latent"),
]


def test_names_of_recipes_are_safe_and_different_files() -> None:
    files = [picture_file(kind, name) for kind in ("metric", "field") for name in NAMES]  # type: ignore[arg-type]
    assert len(set(files)) == len(files)
    for file in files:
        assert len(file) <= 90 and layout.known(layout.qc_picture("digits", file)) is not None
    assert picture_file("metric", "ratio") == "qc-ratio.png"
    assert picture_file("field", "latent") == "qc-field-latent.png"


def test_a_name_cannot_be_made_to_be_the_file_of_another() -> None:
    mark = hashlib.sha256(b"Ratio").hexdigest()[:8]
    assert picture_file("metric", "Ratio") == f"qc-ratio-{mark}.png"
    assert picture_file("metric", f"ratio-{mark}") != picture_file("metric", "Ratio")


def test_a_recipe_with_very_many_metrics_gets_a_bounded_number_of_pictures() -> None:
    suite = make_suite(fail={"m999": "> 1"})
    standings = [done(0, {f"m{n}": score(1.0) for n in range(1000)}, suite=suite)]
    files = [file for file, _ in qc_charts.qc_figures(standings, suite, title="a")]
    assert len(files) == qc_series.MAX_CHARTS + 1  # and the suite's own field
    assert files[0] == "qc-m999.png"  # what has a threshold is never the one that is left out


# --- the contact sheet --------------------------------------------------------------------------------------

SHOWN = ("u-0", "u-1", "u-2")
ROSTER = Roster(
    role="development",
    data=A,
    stratum="label",
    quotas={"zero": 1, "one": 1, "two": 1},
    units=tuple(
        RosterUnit(id=unit, stratum=stratum, sha256=A)
        for unit, stratum in zip(SHOWN, ("zero", "one", "two"), strict=True)
    ),
    shown=SHOWN,
)


def picture(level: float, height: int = 8, width: int = 8) -> panels.Picture:
    """One colour all over, that no letter has."""
    values = np.broadcast_to(np.array([level, 0.6, 0.9]), (height, width, 3))
    return panels.Picture(values=values, low=0.0, high=1.0)


def there(image: np.ndarray[Any, Any], level: float) -> np.ndarray[Any, Any]:
    """Where a picture of that colour is."""
    return (image == np.array((round(level * 255), 153, 230))).all(axis=2)


def panels_of(*levels: float, sizes: Sequence[tuple[int, int]] = ((8, 8),) * 3) -> bytes:
    """Panels as an examination makes them: two of each unit, the second one white."""
    rows = zip(levels, sizes, strict=True)
    return panels.sheet([[picture(level, *size), picture(1.0, *size)] for level, size in rows])


def column(update: int, state: Any = "passed", data: bytes | None = None) -> Column:
    return Column(update=update, state=state, panels=panels_of(0.0, 0.5, 0.25) if data is None else data)


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def count(image: np.ndarray[Any, Any], colour: tuple[int, int, int]) -> int:
    return int((image == np.array(colour)).all(axis=2).sum())


def test_a_cell_is_the_panels_of_a_unit_at_true_aspect() -> None:
    # covers QC-02, QC-04
    sizes = ((8, 8), (8, 24), (32, 8))  # square, wide, high
    data = panels_of(0.2, 0.4, 0.6, sizes=sizes)
    sheet = pixels(draw_sheet(ROSTER, [column(0, data=data)], title="a run"))
    for level, (height, width) in zip((0.2, 0.4, 0.6), sizes, strict=True):
        ys, xs = np.nonzero(there(sheet, level))
        box = np.ptp(ys) + 1, np.ptp(xs) + 1
        assert len(ys) == box[0] * box[1]  # a whole rectangle, nothing cut off
        assert box[0] * width == box[1] * height


def test_the_sheet_has_a_row_for_each_shown_unit_and_a_column_for_each_update() -> None:
    columns = [column(update, data=panels_of(0.2, 0.4, 0.6)) for update in (0, 100, 200)]
    sheet = pixels(draw_sheet(ROSTER, columns, title="a run"))
    for level in (0.2, 0.4, 0.6):
        assert there(sheet, level).sum() == 3 * 48 * 48
    tops = [np.nonzero(there(sheet, level))[0].min() for level in (0.2, 0.4, 0.6)]
    assert tops == sorted(tops)  # in the roster's order


def test_a_failed_checkpoint_has_a_red_frame_and_others_none() -> None:
    # covers QC-24
    red = (0xB0, 0x00, 0x20)
    passed = pixels(draw_sheet(ROSTER, [column(0), column(100)], title="a"))
    failed_ = pixels(draw_sheet(ROSTER, [column(0), column(100, "failed")], title="a"))
    assert count(passed, red) == 0
    assert count(failed_, red) > 4 * (48 + 48)


def test_what_waits_is_an_empty_column() -> None:
    # covers QC-23
    blank = Column(update=100, state="waiting", panels=None)
    sheet = pixels(draw_sheet(ROSTER, [column(0, data=panels_of(0.2, 0.4, 0.6)), blank], title="a"))
    assert there(sheet, 0.2).sum() == 48 * 48


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, panels_of(0.1, 0.2, sizes=((8, 8),) * 2)],
    ids=["empty", "text", "cut short", "other rows"],
)
def test_panels_that_cannot_be_cut_hide_no_others(data: bytes) -> None:
    columns = [
        Column(update=0, state="passed", panels=panels_of(0.2, 0.4, 0.6)),
        Column(update=100, state="passed", panels=data),
    ]
    assert there(pixels(draw_sheet(ROSTER, columns, title="a")), 0.2).sum() == 48 * 48
    with pytest.raises(ValueError, match="no checkpoint has panels"):
        draw_sheet(ROSTER, columns[1:], title="a")


def test_the_sheet_says_which_panel_is_which_where_the_panels_do() -> None:
    rows = [[picture(0.2), picture(1.0)]] * 3
    named = panels.sheet(rows, ["input", "drawn"])
    assert names_of(named) == ["input", "drawn"]
    plain = panels.sheet(rows)
    assert (pixels(named) == pixels(plain)).all(), "it is written beside the pixels"
    said, silent = (draw_sheet(ROSTER, [column(0, data=data)], title="a") for data in (named, plain))
    assert len(pixels(said)) == len(pixels(silent)) and said != silent


@pytest.mark.parametrize("text", ["", "{}", "[", "7", "[" * 100_000])
def test_names_of_panels_that_are_none_hide_nothing(text: str) -> None:
    said = PngInfo()
    said.add_itxt("panels", text)
    out = io.BytesIO()
    Image.open(io.BytesIO(panels_of(0.2, 0.4, 0.6))).save(out, "PNG", pnginfo=said)
    assert names_of(out.getvalue()) == []
    assert names_of(None) == names_of(b"no picture") == []
    sheet = pixels(draw_sheet(ROSTER, [column(0, data=out.getvalue())], title="a"))
    assert there(sheet, 0.2).sum() == 48 * 48


def test_pictures_in_the_grey_of_the_bars_are_not_taken_for_bars() -> None:
    grey = 112 / 255
    bars = panels.Picture(values=np.full((8, 8), grey), low=0.0, high=1.0)
    data = panels.sheet([[bars], [bars], [picture(0.2)]])
    assert row_spans(pixels(data), 3) == [(4, 52), (56, 104), (108, 156)]
    sheet = pixels(draw_sheet(ROSTER, [Column(update=0, state="passed", panels=data)], title="a"))
    assert there(sheet, 0.2).sum() == 48 * 48


def test_of_many_checkpoints_the_ends_and_the_failed_ones_stay() -> None:
    states = {700: "failed", 1300: "failed"}
    columns = [
        Column(update=update, state=states.get(update, "passed"), panels=None)  # type: ignore[arg-type]
        for update in range(0, 10_000, 100)
    ]
    kept = [each.update for each in thinned(columns)]
    assert len(kept) == MAX_COLUMNS and kept == sorted(set(kept))
    assert {0, 700, 1300, 9900} <= set(kept)
    gaps = np.diff([update for update in kept if update > 1300])
    assert gaps.max() < 3 * gaps.min()
    bad = [Column(update=n, state="failed", panels=None) for n in range(100)]
    assert len(thinned(bad)) == MAX_COLUMNS and [thinned(bad)[0].update, thinned(bad)[-1].update] == [0, 99]


def test_the_sheet_is_bounded() -> None:
    names = [f"stratum {n}" for n in range(100)]
    roster = Roster(
        role="development",
        data=A,
        stratum="label",
        quotas=dict.fromkeys(names, 1),
        units=tuple(RosterUnit(id=f"u-{n}", stratum=name, sha256=A) for n, name in enumerate(names)),
        shown=tuple(f"u-{n}" for n in range(100)),
    )
    data = panels.sheet([[picture(0.5, 64, 64)] * 4] * 100)
    columns = [column(update, data=data) for update in range(40)]
    sheet = pixels(draw_sheet(roster, columns, title="t" * 500))
    assert sheet.shape[0] <= MAX_HEIGHT_PX and sheet.shape[1] <= MAX_WIDTH_PX


def test_words_of_a_recipe_are_drawn_as_they_are() -> None:
    names = ("\u202e<b>&", "\x1b[31m" * 30, "\U0001f4a5 \u05d0\n")
    units = tuple(
        RosterUnit(id=unit, stratum=name, sha256=A) for unit, name in zip(SHOWN, names, strict=True)
    )
    roster = ROSTER.model_copy(update={"units": units})
    assert draw_sheet(roster, [column(0)], title="\x1b]0;owned\x07").startswith(b"\x89PNG")


# --- in the store -------------------------------------------------------------------------------------------


def put(store: Any, said: list[str] | None = None) -> dict[str, str]:
    read = read_qc(store, "digits", now=2e9)
    assert read is not None
    from raykit.store.qc import Examinations

    roster = Examinations(store, "digits").roster(read.suite.roster)
    say = (said if said is not None else []).append
    standings = read.backlog.standings
    return put_pictures(store, "digits", suite=read.suite, roster=roster, standings=standings, say=say)


@pytest.fixture
def made() -> QcMaker:
    maker = make_trained(QcMaker(MemoryStore()))
    for update in (0, 10, 20):
        maker.examine(update, pictures={"panels.png": panels_of(0.2, 0.4, 0.6)})
    return maker


def test_pictures_are_derived_objects_of_the_store(made: QcMaker) -> None:
    drawn = put(made.store)
    assert sorted(drawn) == [SHEET, "qc-field-latent.png", "qc-ratio.png"]
    for file, key in drawn.items():
        assert key == layout.qc_picture("digits", file)
        known = layout.known(key)
        assert known is not None and known.kind in layout.DERIVED
        assert made.store.get(key).startswith(b"\x89PNG")
    assert put(made.store) == drawn  # and may be drawn again


def test_nothing_is_drawn_before_there_is_a_receipt() -> None:
    maker = make_trained(QcMaker(MemoryStore()))
    maker.ask(0)
    assert put(maker.store) == {}


def test_panels_that_are_not_the_receipts_own_are_not_shown(made: QcMaker) -> None:
    # covers QC-15
    receipt = made.examinations.receipt(made.request(10).id)
    assert receipt is not None
    key = made.examinations.artifact_key(receipt, receipt.artifacts[0])
    made.store.delete(key)
    made.store.put_new(key, panels_of(0.0, 0.0, 0.0))
    said: list[str] = []
    drawn = put(made.store, said)
    assert any("sha256" in text or "bytes" in text for text in said)
    sheet = pixels(made.store.get(drawn[SHEET]))
    assert there(sheet, 0.2).sum() == 2 * 48 * 48  # of update 0 and 20


class Full:
    """A store that takes nothing."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_derived(self, key: str, data: bytes) -> None:
        raise StoreUnavailableError("no space left")


def test_a_picture_that_cannot_be_drawn_or_kept_never_raises(made: QcMaker) -> None:
    said: list[str] = []
    assert put(Full(made.store), said) == {}
    assert [text.split(" could")[0] for text in said] == ["qc-ratio.png", "qc-field-latent.png", SHEET]
    assert all("no space left" in text for text in said)
