"""Synthetic sets on the page, and samples of them as a picture: exact, at true aspect, and nothing in it that acts.

covers GEN-02 GEN-11 GEN-15 GEN-17
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from called import Raykit, calls
from makeset import SIDE, SetMaker, make_set, option
from PIL import Image
from test_report_page import TOLD, Parsed, page_from, parsed, section

from raykit.read.generation import read_sets
from raykit.read.setview import SetRead
from raykit.report.page import render
from raykit.report.sets import COLUMNS, ROWS, Pictured, draw_samples, pictured, put_samples, samples_of
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.local import LocalStore
from raykit.store.people import read_acts
from raykit.testing.memory import MemoryStore

NOW = 1_800_009_999.0


def look(store: ObjectStore) -> SetRead:
    (read,) = read_sets(store, "digits", now=NOW)
    return read


def complete(**traits: Any) -> SetMaker:
    """400 rows in ten units; five were filtered and ten failed."""
    maker = make_set(MemoryStore(), rows_asked=400, unit_rows=40, **traits)
    maker.publish(0, 1)
    maker.canary()
    maker.fail_unit(3, message="it raised")
    maker.publish(4, filtered=5, failed=10)
    maker.finish()
    return maker


# --- the page -----------------------------------------------------------------------------------------------


def test_a_set_has_its_accounts_bar_and_population() -> None:
    maker = complete()
    page = parsed(maker.store)
    text = " ".join(section(page, "sets").split())
    assert "400 requested, 385 produced, 5 filtered, 10 failed; 15 of 400 rows fell short (3.8 %)" in text
    assert "filtered: 5 blank" in text and "failed: 10 ValueError" in text
    assert "canary: 2 units, 80 rows at 100 rows/s; projected 4.0 s (3.6 s to 4.6 s)" in text
    for name in ("teacher", "decode", "seed", "precision", "batch", "normalization", "inputs", "exact"):
        assert name in text
    assert "digits-teacher, update 40" in text
    widths = [
        tag.attributes["style"]
        for css in ("produced", "filtered", "failed-rows")
        for tag in page.all("span", css)
    ]
    assert widths == ["width:96.25%", "width:1.25%", "width:2.5%"]
    assert "it raised" in text and "Attempts that came to nothing: 1 memory" in text


def test_the_ways_of_decoding_are_compared_on_quality_and_cost() -> None:
    """covers GEN-02: the one that was taken is marked; both have their figures."""
    page = parsed(complete().store)
    text = " ".join(section(page, "sets").split())
    assert "Ways of decoding, as they were measured, their quality on development" in text
    own, cool = option(), option("cool", took_ms=400, distance=0.05)
    assert "\u25b6 decode" in text and "cool" in text
    for each in (own, cool):
        assert f"{each.quality['distance']:.4g}" in text


def test_where_nothing_was_compared_there_is_no_table_of_options() -> None:
    maker = complete()
    said = read_acts(maker.store, "digits").contracted["digits"][-1]
    maker.tell(said.model_copy(update={"options": (option(),), "surface": None}))
    text = section(parsed(maker.store), "sets")
    assert "Ways of decoding" not in text and "surface" not in text


def test_every_bound_has_its_count_on_the_page() -> None:
    text = " ".join(section(parsed(complete(bounds={"failed": 0.1}).store), "sets").split())
    assert "bad rows: failed 10 of 400 (2.5 %), at most 10 %" in text


def test_every_digest_leads_to_its_object() -> None:
    maker = complete()
    page = parsed(maker.store)
    where = ("digits", "digits", maker.shards.digest)
    links = {tag.attributes["href"].removeprefix("../") for tag in page.all("a")}
    for key in (layout.generation_contract(*where), layout.generation_manifest(*where)):
        assert key.removeprefix("experiments/digits/") in links


def test_what_stands_against_a_set_is_an_alarm() -> None:
    page = parsed(complete(bounds={"failed": 0.001}, scripted=True).store)
    alarms = " ".join(tag.text for tag in page.all("div", "alarm"))
    assert "scripted: only a script has approved its teacher; not for production" in alarms
    assert "10 of 400 rows are failed (2.5 %), and 0.1 % may be" in alarms
    assert "complete, not within its bounds" in section(page, "sets")


def test_a_set_on_its_way_says_what_is_published() -> None:
    """covers GEN-15"""
    store = MemoryStore()
    maker = make_set(store, rows_asked=400, unit_rows=40)
    maker.publish(0, 1)
    maker.canary()
    maker.park(3)
    text = " ".join(section(parsed(store), "sets").split())
    assert "80 of 400 rows accounted for: 80 produced" in text and "not yet made 320" in text
    assert "parked, a person is needed: unit 3" in text


def test_a_set_that_waits_is_said_with_the_timeline() -> None:
    store = MemoryStore()
    make_set(store, contract=False)
    page = parsed(store)
    assert "40 rows requested; nothing is made yet" in section(page, "sets")
    assert "generate digits: waits for an approved checkpoint" in section(page, "timeline")


def test_the_timeline_has_the_canary_and_the_rest() -> None:
    page = parsed(complete().store)
    bars = [tag.attributes["title"] for tag in page.all("i", "generate")]
    assert [bar.split(",")[0] for bar in bars] == ["canary of digits", "the other units of digits"]
    assert "generate" in [tag.text for tag in page.all("span", "name")]


def test_an_experiment_without_sets_has_no_such_section() -> None:
    from makeqc import make_examined

    store = MemoryStore()
    make_examined(store)
    assert not [tag for tag in parsed(store).all("section") if tag.attributes.get("id") == "sets"]


def test_a_damaged_set_is_named_and_hides_nothing() -> None:
    maker = complete()
    store = maker.store
    assert isinstance(store, MemoryStore)
    (key,) = (key for key in store.objects if key.endswith("/contract.json"))
    store.objects[key] = b"{}"
    page = parsed(store)
    assert "contract.json" in " ".join(tag.text for tag in page.all("div", "alarm"))
    assert page.all("figure", "chart") and "update 40" in section(page, "now")


HOSTILE = '<script>alert("1")</script>\u202e\x1b[31m'


def test_hostile_words_are_shown_and_do_nothing() -> None:
    store = MemoryStore()
    maker = make_set(
        store, decode={"prompt": HOSTILE}, normalization={"note": HOSTILE, "image": {"shape": HOSTILE}}
    )
    maker.publish(0, filtered=1)
    receipt, data = maker.unit_receipt(1, failed=1)
    receipt = receipt.model_copy(update={"failed": {HOSTILE: 1}})
    maker.shards.publish(receipt, data, n=1, worker="gen-1")
    maker.fail_unit(2, message=HOSTILE)
    html = render(page_from(store), TOLD)
    page = Parsed(html)
    assert page.all("script") == [] and "\u202e" not in html and "\x1b" not in html
    assert section(page, "sets").count("<script>") >= 3


# --- the picture --------------------------------------------------------------------------------------------


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("L")


def test_samples_are_evenly_of_the_whole_set_and_keep_their_pixels() -> None:
    maker = complete()
    samples = samples_of(maker.store, look(maker.store))
    assert samples is not None and samples.published == 385
    assert len(samples.values) == COLUMNS * ROWS
    assert samples.labels[0] == "0" and samples.labels[-1] == "371"
    picture = np.asarray(opened(draw_samples(samples)))
    first = np.array(samples.values[0]).reshape(SIDE, SIDE)
    factor = 72 // SIDE
    cell = picture[46 : 46 + 72, 20 : 20 + 72]
    for y in range(SIDE):
        for x in range(SIDE):
            block = cell[y * factor + 2 : (y + 1) * factor - 2, x * factor + 2 : (x + 1) * factor - 2]
            assert (block == round(255 * first[y, x] / 16)).all(), "a pixel stays a pixel, of its own grey"


def test_a_picture_is_drawn_at_its_true_aspect() -> None:
    maker = make_set(
        MemoryStore(),
        rows_asked=8,
        normalization={"image": {"low": 0.0, "high": 16.0, "shape": [2, 8]}},
    )
    maker.finish()
    samples = samples_of(maker.store, look(maker.store))
    assert samples is not None
    picture = np.asarray(opened(draw_samples(samples)))
    cell = picture[46 : 46 + 18, 20 : 20 + 72]
    expected = np.array(samples.values[0]).reshape(2, 8)
    assert cell[4, 4] == round(255 * expected[0, 0] / 16) and cell[13, 67] == round(255 * expected[1, 7] / 16)
    assert (picture[46 + 20 : 46 + 22, 20 : 20 + 72] == 255).all(), "below it is paper"


def test_rows_of_inputs_are_called_by_their_ids() -> None:
    maker = make_set(MemoryStore(), rows_asked=8, inputs="prompt", samples=2)
    maker.finish()
    samples = samples_of(maker.store, look(maker.store))
    assert samples is not None and samples.labels[:3] == ("prompt-0 #0", "prompt-0 #1", "prompt-1 #0")
    assert draw_samples(samples)[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"image": 3},
        {"image": {"shape": [4]}},
        {"image": {"shape": [4, 4, 2]}},
        {"image": {"shape": [0, 4]}},
        {"image": {"shape": [True, 4]}},
        {"image": {"shape": [4, 4096]}},
        {"image": {"shape": "44"}},
        {"image": {"shape": [4, 4], "low": 1.0, "high": 1.0}},
        {"image": {"shape": [4, 4], "low": "a"}},
        {"other": {"shape": [4, 4]}},
    ],
)
def test_what_is_no_picture_is_not_drawn(said: dict[str, Any]) -> None:
    maker = make_set(MemoryStore(), rows_asked=8, normalization=said)
    maker.finish()
    assert pictured(maker.generation_contract) is None
    assert samples_of(maker.store, look(maker.store)) is None
    assert put_samples(maker.store, [look(maker.store)]) == {}


def test_colours_are_the_last_axis() -> None:
    found = Pictured(column="image", shape=(1, 2, 3), low=0.0, high=1.0)
    picture = found.pixels([1, 0, 0, 0, 0.5, 1])
    assert picture is not None
    assert [picture.getpixel((0, 0)), picture.getpixel((1, 0))] == [(255, 0, 0), (0, 128, 255)]
    for values in (None, [1, 0, 0], [float("nan")] * 6):
        assert found.pixels(values) is None
    beyond = found.pixels([-5, 0, 2, 0, 0, 0])
    assert beyond is not None and beyond.getpixel((0, 0)) == (0, 0, 255)


def test_a_row_without_a_picture_is_an_empty_frame() -> None:
    from dataclasses import replace

    maker = make_set(MemoryStore(), rows_asked=8)
    maker.finish()
    samples = samples_of(maker.store, look(maker.store))
    assert samples is not None
    holed = replace(samples, values=([1.0, 2.0], *samples.values[1:]))
    cell = np.asarray(opened(draw_samples(holed)))[46 + 3 : 46 + 69, 20 + 3 : 20 + 69]
    assert (cell == 255).all()


def test_before_anything_is_published_there_is_nothing_to_draw() -> None:
    store = MemoryStore()
    make_set(store, contract=False)
    assert samples_of(store, look(store)) is None
    maker = make_set(MemoryStore())
    assert samples_of(maker.store, look(maker.store)) is None


def test_what_cannot_be_drawn_is_said_and_stops_nothing() -> None:
    maker = complete()
    store = maker.store
    assert isinstance(store, MemoryStore)
    (key,) = (key for key in store.objects if "/units/00000000-" in key)
    store.objects[key] = b"x"
    said: list[str] = []
    assert put_samples(store, [look(store)], say=said.append) == {}
    assert len(said) == 1 and "digits/digits could not be drawn" in said[0]


def test_the_report_draws_and_embeds_the_samples(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "store")
    make_set(store).finish()
    raykit: Raykit = calls(capsys)
    found = raykit("report", "digits", "--root", str(tmp_path / "store"))
    assert found.code == 0, found.err
    page = Parsed((tmp_path / "store" / layout.report("digits", "index.html")).read_text())
    (image,) = (tag for tag in page.all("img") if "digits/digits" in tag.attributes["alt"])
    assert image.attributes["src"].startswith("data:image/png;base64,")
    data = store.get(layout.generation_picture("digits", "digits", "samples.png"))
    picture = opened(data)
    assert (image.attributes["width"], image.attributes["height"]) == (
        str(picture.width),
        str(picture.height),
    )
    assert raykit("check", "--root", str(tmp_path / "store"), "--json").json["unknown"] == []
