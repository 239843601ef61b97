"""The page of an experiment: all of it from the store, nothing in it that could act, and no pass that is none."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import Raykit, calls
from makebudget import PaidByNode
from makeqc import QcMaker, failed, make_examined, make_trained
from makerun import make_run

import raykit
from raykit.errors import StoreUnavailableError
from raykit.qc.backlog import Backlog
from raykit.read.page import Page, page_of
from raykit.read.view import RunView
from raykit.records import CandidateApproved, CandidatesEntry, QcFinding, Registered, Score, Switched
from raykit.report.page import chart, evidence, render, summary, timeline
from raykit.report.page.render import Told, needs
from raykit.report.page.words import clean, evenly
from raykit.store import layout, people
from raykit.store.local import LocalStore
from raykit.store.log import Log
from raykit.testing.memory import MemoryStore
from raykit.work import panels

TOLD = Told(state="completed")
VOID = frozenset({"meta", "img", "br", "path"})
SECTIONS = ["question", "now", "money", "learning", "qc", "timeline", "checkpoints", "evidence"]


# --- reading a page -----------------------------------------------------------------------------------------


@dataclass
class Tag:
    name: str
    attributes: dict[str, str]
    text: str = ""

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()


@dataclass
class Parsed(HTMLParser):
    """A page as its tags, each with the text that is in it, and whether they close as they open."""

    html: str
    tags: list[Tag] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[Tag] = []
        self.feed(self.html)
        self.close()
        assert self._open == [], [tag.name for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Tag(tag, {name: value or "" for name, value in attrs})
        assert len(found.attributes) == len(attrs), "an attribute is there twice"
        self.tags.append(found)
        if tag not in VOID:
            self._open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for each in self._open:
            each.text += data

    def all(self, name: str, css: str | None = None) -> list[Tag]:
        return [tag for tag in self.tags if tag.name == name and (css is None or css in tag.classes)]

    def one(self, name: str, **attributes: str) -> Tag:
        (found,) = [
            tag
            for tag in self.all(name)
            if all(tag.attributes.get(key) == value for key, value in attributes.items())
        ]
        return found


def page_from(store: Any, name: str = "digits") -> Page:
    return page_of(raykit.open(store, clock=lambda: 1_800_009_999.0), name)


def parsed(store: Any, **given: Any) -> Parsed:
    return Parsed(render(page_from(store), given.pop("told", TOLD), **given))


def section(page: Parsed, name: str) -> str:
    return page.one("section", id=name).text


def panels_of(level: float) -> bytes:
    values = np.full((8, 8), level)
    return panels.sheet([[panels.Picture(values=values, low=0.0, high=1.0)]] * 3)


# --- what is on it ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed() -> QcMaker:
    """A run that was killed, paused and resumed, with checkpoints in every state."""
    maker = QcMaker(MemoryStore(), updates=120)
    maker.freeze()
    maker.launch()
    maker.begin()
    for _ in range(4):
        train(maker)
    maker.rows(7, every=1)
    maker.launch()  # the one before was killed
    maker.begin()
    for _ in range(3):
        train(maker)
    maker.ask_to_stop("a person asked")
    maker.end("paused")
    maker.release("paused")
    people.pause(
        maker.store, "experiment:digits", reason="promised to inference", person="mira", at=maker.at + 5
    )
    maker.at += 400
    people.resume(maker.store, "experiment:digits", cleared="they are back", person="mira", at=maker.at)
    maker.launch()
    maker.begin()
    for _ in range(5):
        train(maker)
    collapsed = QcFinding(kind="collapsed", what="latent", found="spread 0.3", rule="at least 0.2 of it")
    maker.examine(0, pictures={"panels.png": panels_of(0.1)})
    maker.examine(10)
    maker.examine(20)
    maker.examine(30, ratio=0.41, findings=[failed()])
    maker.examine(40, spread=0.3, findings=[collapsed])
    accuracy = Score(value=0.9, strata={"0": 0.99, "1": 0.8}, no_skill=0.1, better="more")
    maker.examine(50, metrics={"accuracy": accuracy})
    maker.review(0, 10, by="mira")
    maker.review(20, by="ci", scripted=True)
    maker.review(30, verdict="failed", by="ada", note="blurred")
    for worker in ("qc-1", "qc-2", "qc-1"):
        maker.fail_attempt(60, worker=worker, message="ValueError: bad")
    maker.take(70, deadline_s=1e9)
    maker.ask(80)
    maker.fail_attempt(90, kind="memory", message="too much")
    maker.end("completed")
    maker.release("completed")
    return maker


def train(maker: QcMaker) -> None:
    maker.rows(10)
    maker.look()
    maker.commit("final" if maker.update == maker.updates else "cadence")


def test_the_sections_are_in_the_order_in_which_people_ask(mixed: QcMaker) -> None:
    page = parsed(mixed.store)
    assert [tag.attributes["id"] for tag in page.all("section")] == SECTIONS
    assert page.all("h1")[0].text == "digits"
    assert "Is digits good?" in section(page, "question")
    assert "worthwhile 0.01" in section(page, "now") and "no skill 1.0" in section(page, "now")
    assert "120 of 120" in section(page, "now") and "7 updates superseded" in section(page, "now")


def test_who_is_waited_for_is_said_on_top(mixed: QcMaker) -> None:
    told = Told(state="paused", needed=needs(["  it is paused", "  -> raykit resume digits", ""]))
    (needed,) = parsed(mixed.store, told=told).all("div", "needed")
    assert "it is paused" in needed.text and "->" not in needed.text
    page = parsed(mixed.store, told=told)
    assert [code.text for code in page.all("code")] == ["raykit resume digits"]
    assert page.all("div", "needed")[0].text.split() == needed.text.split()
    assert "nothing" in parsed(mixed.store).all("div", "needed")[0].text


def cells(page: Parsed, label: str, occurrence: int = 0) -> list[Tag]:
    """The cells of a row of the first grid."""
    inside = page.tags[page.tags.index(page.all("table", "grid")[0]) :]
    starts = [
        n
        for n, tag in enumerate(inside)
        if tag.attributes.get("scope") == "row" and tag.text == label and tag.name == "th"
    ]
    row = inside[starts[occurrence] + 1 :]
    end = next((n for n, tag in enumerate(row) if tag.name in ("tr", "tbody")), len(row))
    return [tag for tag in row[:end] if tag.name == "td"]


def test_every_state_of_a_checkpoint_has_a_sign_of_its_own_and_none_but_a_pass_is_a_pass(
    mixed: QcMaker,
) -> None:
    # covers QC-21, QC-23, QC-24, QC-27
    page = parsed(mixed.store)
    verdicts = cells(page, "verdict")
    states = [tag.attributes["class"] for tag in verdicts]
    assert states == [
        *("ok", "ok", "ok", "bad", "bad", "ok"),
        *("parked", "claimed", "pending", "retrying", "missing", "missing", "missing"),
    ]
    signs = {tag.attributes["class"]: tag.text for tag in verdicts}
    assert all(text.strip() for text in signs.values()) and len(set(signs.values())) == len(signs)
    for label in ("units scored", "reviewed", "all", "0", "spread"):
        row = cells(page, label)
        assert len(row) == 13
        assert all("ok" not in tag.classes for tag in row[6:]), label
    ratio = cells(page, "all")
    assert [tag.attributes["class"] for tag in ratio[:6]] == ["value", "ok", "ok", "bad", "ok", "ok"]
    assert "0.410" in ratio[3].text and "\u2715" in ratio[3].text
    assert [tag.attributes["class"] for tag in cells(page, "spread")[:6]][4] == "bad"


def test_what_was_not_judged_is_not_shown_as_passed(mixed: QcMaker) -> None:
    page = parsed(mixed.store)
    assert cells(page, "all")[0].attributes["class"] == "value"  # update 0 of a model from scratch
    assert cells(page, "0")[1].attributes["class"] == "value"  # a threshold is of all together
    assert cells(page, "0")[3].attributes["class"] == "over"


def test_completed_is_never_drawn_green(mixed: QcMaker) -> None:
    page = parsed(mixed.store)
    (state,) = page.all("span", "state")
    assert state.text == "completed" and state.classes == ["state"]
    style = (Path(raykit.__file__).parent / "report" / "page" / "style.css").read_text("utf-8")
    colours = re.findall(r"--(?!c\d)[a-z-]+: #([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})", style)
    assert len(colours) > 10
    for red, green, blue in colours:
        assert int(green, 16) <= max(int(red, 16), int(blue, 16)), "a green that is not a line of a chart"
    assert "\u2715 QC: 2 failed, 1 parked" in page.all("p", "states")[0].text


def test_reviews_name_their_person_and_a_script_is_called_one(mixed: QcMaker) -> None:
    # covers QC-25, QC-26
    page = parsed(mixed.store)
    reviewed = [tag.text for tag in cells(page, "reviewed")]
    assert reviewed[:4] == ["\u2713 mira", "\u2713 mira", "\u2713 ci (scripted)", "\u2715 ada"]
    assert "not yet" in reviewed[4]
    assert "ci (scripted)" in section(page, "checkpoints")
    assert "blurred" in section(page, "evidence")


def test_a_candidate_has_its_state_and_who_gave_it_one() -> None:
    maker = make_examined(MemoryStore())
    commit = maker.commit_at(40)
    log = Log(maker.store, layout.candidates_log(), CandidatesEntry, by="mira")
    registered = Registered(
        candidate="digits-40",
        role="production-candidate",
        origin="run",
        manifest=commit.sha256,
        key=commit.key,
        experiment="digits",
        update=40,
        person="mira",
    )
    log.append(lambda _: [registered], at=maker.at)
    assert "digits-40: observed" in section(parsed(maker.store), "checkpoints")
    approved = CandidateApproved(
        candidate="digits-40",
        manifest=commit.sha256,
        use="generation",
        reason="it is the best",
        person="ci",
        scripted=True,
    )
    log.append(lambda _: [approved], at=maker.at)
    page = parsed(maker.store)
    assert [each.text for each in page.all("p", "chosen")] == [
        "digits-40, update 40, approved for generation by ci (scripted)"
    ]
    assert "digits-40: approved (scripted)" in section(page, "checkpoints")
    assert "ci (scripted)" in section(page, "evidence") and "it is the best" in section(page, "evidence")


def test_the_head_names_what_is_in_production_and_what_stands_against_it() -> None:
    # covers CAND-15
    maker = make_examined(MemoryStore())
    assert parsed(maker.store).all("p", "chosen") == []
    commit = maker.commit_at(40)
    said: list[Any] = [
        Registered(
            candidate="best",
            role="release-model",
            origin="run",
            manifest=commit.sha256,
            key=commit.key,
            experiment="digits",
            update=40,
            person="mira",
        ),
        CandidateApproved(candidate="best", manifest=commit.sha256, reason="it is the best", person="mira"),
        Switched(to="best", reason="it is the first", person="mira"),
    ]
    Log(maker.store, layout.candidates_log(), CandidatesEntry, by="mira").append(lambda _: said, at=maker.at)
    words = "in production: best, update 40, approved for production by mira"
    assert [each.text for each in parsed(maker.store).all("p", "chosen")] == [words]
    maker.review(40, verdict="failed", by="ada", note="blurred")
    (found,) = parsed(maker.store).all("p", "chosen")
    assert found.text == f"{words}; but no decision may rest on it: ada has reviewed it as failed: blurred"


def test_what_failed_is_said_with_its_reason(mixed: QcMaker) -> None:
    # covers QC-09, QC-21, GOLD-28
    found = section(parsed(mixed.store), "qc")
    assert "update 30: ratio 0.41, wanted > 0.35" in found
    assert "update 40: latent spread 0.3, wanted at least 0.2 of it" in found
    assert "update 60: parked, a person is needed: recipe, ValueError: bad" in found


def test_a_finding_has_the_words_of_the_command_line() -> None:
    # covers QC-09
    maker = make_trained(QcMaker(MemoryStore()))
    maker.examine(0)
    limit = QcFinding(kind="threshold", what="ratio", found="0.5", rule="fails if > 0.41")
    lost = QcFinding(
        kind="stratum-lost",
        what="scored",
        stratum="2",
        found="0 of 2 units scored: 2 failed, 0 missing",
        rule="at least one scored unit of every stratum",
    )
    maker.examine(10, ratio=0.5, findings=[limit, lost])
    found = section(parsed(maker.store), "qc")
    assert "update 10: ratio 0.5, fails if > 0.41" in found and "wanted fails" not in found
    assert "ratio, fails if > 0.35" in found and "latent, fails below 0.2 of its spread" in found
    assert "update 10: stratum 2: 0 of 2 units scored: 2 failed, 0 missing, wanted at least one" in found


def test_what_a_person_has_reviewed_as_failed_is_no_pass_anywhere() -> None:
    # covers QC-21, QC-25
    maker = make_examined(MemoryStore())
    assert "QC examined and reviewed" in parsed(maker.store).all("p", "states")[0].text
    maker.review(40, verdict="failed", by="ada", note="the sevens are gone")
    page = parsed(maker.store)
    assert "\u2715 QC: 1 failed, 0 parked" in page.all("p", "states")[0].text
    assert "examined and reviewed" not in page.all("p", "states")[0].text
    assert cells(page, "verdict")[-1].classes == ["bad"]
    assert (
        "ada has reviewed it as failed: the sevens are gone" in cells(page, "verdict")[-1].attributes["title"]
    )
    assert section(page, "checkpoints").count("\u2715 failed") == 1


def test_the_curve_has_no_skill_and_every_attempt(mixed: QcMaker) -> None:
    # covers HIST-13
    page = parsed(mixed.store)
    assert "no skill: 1.0" in section(page, "learning")
    marks = [(tag.text, tag.attributes["title"]) for tag in page.all("div", "upright")]
    assert [text for text, _ in marks] == ["2", "\u20163"]
    assert "attempt 2 goes on from update 40; before it: killed" in marks[0][1]
    assert "attempt 3 goes on from update 70; before it: paused" in marks[1][1]
    dots = next(tag for tag in page.all("path") if "dots" in tag.classes)
    assert dots.attributes["d"].count("M") == 13  # the development split at 0, 10, ... 120


def test_the_timeline_has_gates_attempts_pauses_and_examinations(mixed: QcMaker) -> None:
    page = parsed(mixed.store)
    bars = {lane: page.all("i", lane) for lane in ("gates", "train", "pause", "qc")}
    assert {lane: len(found) for lane, found in bars.items()} == {
        "gates": 2,
        "train": 3,
        "pause": 1,
        "qc": 11,
    }
    assert "failed" in bars["train"][0].classes  # it was killed
    assert sum("failed" in bar.classes for bar in bars["qc"]) == 4
    for bar in (bar for found in bars.values() for bar in found):
        left, width = (float(x) for x in re.findall(r":([\d.]+)%", bar.attributes["style"]))
        assert left >= 0 and width > 0 and left + width <= 100.001
    assert "promised to inference" in bars["pause"][0].attributes["title"]


def test_the_resume_receipts_have_their_class(mixed: QcMaker) -> None:
    found = section(parsed(mixed.store), "evidence")
    assert "exact (declared); the plan needs exact" in found and "first start" in found
    assert "killed at update 47" in found


def test_every_number_leads_to_its_object(tmp_path: Path) -> None:
    maker = make_examined(LocalStore(str(tmp_path / "store")))
    html = render(page_from(maker.store), TOLD)
    place = tmp_path / "store" / layout.report("digits", "index.html")
    links = [tag.attributes["href"] for tag in Parsed(html).all("a")]
    assert len(links) > 20
    for link in links:
        assert not link.startswith("/") and ":" not in link
        assert (place.parent / link).resolve().is_file(), link
    objects = [(place.parent / link).resolve().relative_to(tmp_path / "store") for link in links]
    known = [layout.known(str(key)) for key in objects]
    assert None not in known
    kinds = {each.kind for each in known if each is not None}
    assert {"qc-receipt", "qc-suite", "checkpoint", "plan", "code"} <= kinds


def test_a_page_that_lies_elsewhere_has_no_links_and_the_same_words(mixed: QcMaker) -> None:
    here, away = parsed(mixed.store), parsed(mixed.store, linked=False)
    assert away.all("a") == [] and here.all("a")
    assert here.one("body").text.split() == away.one("body").text.split()
    receipt = mixed.examinations.receipt(mixed.request(10).id)
    assert receipt is not None and receipt.digest in away.html  # whole, where there is no link


def test_what_is_not_known_is_said(mixed: QcMaker) -> None:
    found = section(parsed(mixed.store), "evidence")
    assert "Not known here, which does not show that it is nowhere" in found
    assert "what was reviewed before it was launched: its lock keeps no review" in found
    assert "they were not looked at" in found


def test_a_plan_without_qc_says_so() -> None:
    maker = make_run(MemoryStore())
    page = parsed(maker.store)
    assert "The plan has no [qc]." in section(page, "qc")
    assert "It has no budget here." in section(page, "money")


# --- money --------------------------------------------------------------------------------------------------


@pytest.fixture
def paid() -> PaidByNode:
    maker = PaidByNode(MemoryStore(), experiment="lm1b")
    maker.freeze()
    maker.approve()
    maker.launch()
    maker.begin()
    maker.rows(10)
    maker.commit()
    maker.end("paused", hours=2.0)
    maker.release("paused")
    return maker


def test_the_bar_of_money_is_all_of_the_ceiling(paid: PaidByNode) -> None:
    # covers BUD-36
    page = page_from(paid.store, "lm1b")
    purse = summary.purse(page)
    assert purse is not None
    shares = {part.name: part for part in purse.parts}
    assert sum(part.percent for part in purse.parts) == pytest.approx(100, abs=0.01)
    assert shares["spent"].amount == "$47.84" and shares["spent"].percent == pytest.approx(5.316)
    assert shares["confirmation, kept"].amount == "$307.67"
    html = Parsed(render(page, TOLD))
    assert "ceiling below $900.00" in section(html, "money")
    (bar,) = html.all("div", "bar")
    assert "spent $47.84" in bar.attributes["aria-label"]
    assert "$47.84" in section(html, "now") and "of below $900.00" in section(html, "now")
    assert "approval" in section(html, "evidence") and "mira" in section(html, "evidence")


def test_what_is_not_billed_has_no_amounts(paid: PaidByNode) -> None:
    page = page_from(paid.store, "lm1b")
    assert page.view is not None and page.view.money is not None
    free = replace(page, view=unbilled(page.view))
    text = section(Parsed(render(free, TOLD)), "money")
    assert "not billed" in text and "$" not in text


def unbilled(view: RunView) -> RunView:
    assert view.money is not None
    return replace(view, money=replace(view.money, billed=False))


# --- nothing in it acts -------------------------------------------------------------------------------------

HOSTILE = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}&amp;\u202egnp.\U0001f4a5\x1b[31m"
)
RTL = "\u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627"
LONG = "w" * 2000
TAGS = frozenset(
    re.findall(
        r"[a-z0-9]+",
        "html head meta title style body header div h1 h2 h3 p span strong ul li code main section figure img "
        "figcaption i b svg path table caption thead tbody tr th td a details summary dl dt dd footer",
    )
)
ATTRIBUTES = frozenset(
    re.findall(
        r"[a-z-]+",
        "lang charset http-equiv content name class id style title href role aria-label aria-hidden viewbox d "
        "preserveaspectratio scope colspan alt width height src open",
    )
)


class Hostile(QcMaker):
    """A run whose every word was written by somebody who wishes us ill."""

    fail = {HOSTILE: "> 0.35", "ratio": "> 0.35"}
    owner = HOSTILE

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        settings["claim"] |= {"metric": HOSTILE, "worthwhile": HOSTILE, "success": RTL + HOSTILE}
        return {**settings, "decision": HOSTILE + LONG, "if_no": f"</p></section>{HOSTILE}{RTL}"}


@pytest.fixture(scope="module")
def hostile() -> Hostile:
    maker = make_trained(Hostile(MemoryStore()))  # type: ignore[arg-type]
    assert isinstance(maker, Hostile)
    strata = {HOSTILE: 0.1, RTL: 0.2, LONG: 0.3}
    scores = {HOSTILE: Score(value=0.2, strata=strata, no_skill=1.0, better="less")}
    finding = QcFinding(kind="threshold", what=HOSTILE, stratum=HOSTILE, found=HOSTILE, rule=HOSTILE)
    maker.examine(0, metrics=scores)
    maker.examine(10, metrics=scores, findings=[finding])
    maker.review(0, by=HOSTILE, note=HOSTILE + LONG[:1500])
    maker.review(10, by=RTL, verdict="failed", note="</td></table><iframe src=//evil.example>")
    maker.fail_attempt(20, message=HOSTILE)
    people.pause(maker.store, "experiment:digits", reason=HOSTILE, person=HOSTILE, at=maker.at)
    return maker


def test_hostile_words_are_shown_and_do_nothing(hostile: Hostile) -> None:
    told = Told(state="paused", needed=needs([HOSTILE]), made=((HOSTILE, HOSTILE),), came=(("a", RTL),))
    page = parsed(hostile.store, told=told)
    assert {tag.name for tag in page.tags} <= TAGS
    assert {name for tag in page.tags for name in tag.attributes} <= ATTRIBUTES
    body = page.one("body").text
    assert "<script>alert(1)</script>" in body and "{{ 7*7 }}" in body and RTL in body
    assert [tag.attributes["id"] for tag in page.all("section")] == SECTIONS
    assert "</p></section>" in section(page, "question")
    assert not any(tag.attributes.get("src") for tag in page.all("img"))


def test_nothing_that_turns_or_hides_text_is_left_in_it(hostile: Hostile) -> None:
    html = render(page_from(hostile.store), TOLD)
    unseen = {c for c in html if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"}
    assert unseen == set()


def test_a_page_refers_to_nothing_outside_itself(hostile: Hostile, mixed: QcMaker) -> None:
    for store in (hostile.store, mixed.store):
        page = parsed(store, sheet=b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR\0\0\0\x10\0\0\0\x10")
        policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
        rules = [rule.strip() for rule in policy.split(";")]
        assert rules[0] == "default-src 'none'"
        assert set(rules[1:]) == {
            "img-src data:",
            "style-src 'unsafe-inline'",
            "base-uri 'none'",
            "form-action 'none'",
        }
        for tag in page.tags:
            for name, value in tag.attributes.items():
                if name in ("src", "href"):
                    assert value.startswith(("data:image/png;base64,", "../")), value
                assert "url(" not in value or name not in ("style",)
        style = page.one("style").text
        assert "url(" not in style and "@import" not in style and "http" not in style and "<" not in style


def test_a_place_on_the_page_is_a_number_of_our_own(hostile: Hostile) -> None:
    """Inline styles are the one thing that the policy lets through: nothing that was stored is ever in one."""
    for tag in parsed(hostile.store).tags:
        style = tag.attributes.get("style", "")
        assert re.fullmatch(r"((left|top|width|height):\d+(\.\d+)?%;?)*", style), style
        assert all(re.fullmatch(r"[a-z][a-z0-9-]*", css) for css in tag.classes), tag.classes
        assert re.fullmatch(r"[MLhZ0-9. -]*", tag.attributes.get("d", ""))


@pytest.mark.parametrize("text", ["", "a\x00b", "\u202eabc", "\ud800", "a\nb", "x" * 5000])
def test_text_is_cleaned(text: str) -> None:
    assert clean(text, 100).isprintable() and len(clean(text, 100)) <= 101


def test_joined_emoji_stay_joined() -> None:
    assert clean("\U0001f469\u200d\U0001f680") == "\U0001f469\u200d\U0001f680"


# --- half stores --------------------------------------------------------------------------------------------


def keys(store: Any, kind: str) -> list[str]:
    return [
        listed.key
        for listed in store.list("")
        if (known := layout.known(listed.key)) is not None and known.kind == kind
    ]


def remove(kind: str, n: int = 0) -> Callable[[Any], None]:
    def act(store: Any) -> None:
        store.delete(keys(store, kind)[n])

    return act


def change(kind: str, n: int = 0, to: bytes | None = None) -> Callable[[Any], None]:
    def act(store: Any) -> None:
        key = keys(store, kind)[n]
        data = store.get(key)
        store.delete(key)
        store.put_new(key, data[:-20] + b"?" * 20 if to is None else to)

    return act


def registry(store: Any) -> None:
    store.put_new("candidates/log/000000000001.json", b"{}")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (remove("segment"), "history"),
        (change("segment", 3), "history"),
        (change("qc-receipt"), "qc/receipts"),
        (change("qc-receipt", to=b"{}"), "qc/receipts"),
        (remove("qc-suite"), "qc/suites"),
        (remove("qc-roster"), "roster"),
        (change("run-entry", -1), "log"),
        (change("experiment-entry", -1), "log"),
        (registry, "candidates"),
    ],
    ids=[
        *(
            "no segment",
            "a changed segment",
            "a receipt cut short",
            "an empty receipt",
            "no suite",
            "no roster",
        ),
        *("a changed run entry", "a changed experiment entry", "a registry of nothing"),
    ],
)
def test_a_damaged_store_has_a_page_that_says_what_is_damaged(
    damage: Callable[[Any], None], says: str
) -> None:
    store = MemoryStore()
    make_examined(store)
    damage(store)
    page = page_from(store)
    html = Parsed(render(page, TOLD))
    assert any(says in text for text in page.damaged), page.damaged
    alarm = " ".join(tag.text for tag in html.all("div", "alarm"))
    assert "this page is not whole" in alarm
    assert all(clean(text) in alarm for text in page.damaged)
    assert [tag.attributes["id"] for tag in html.all("section")] == SECTIONS


@pytest.mark.parametrize(
    ("kind", "n"), [("plan", 0), ("code", 0), ("environment", 0), ("membership", 1), ("checkpoint", 0)]
)
def test_a_frozen_object_that_is_gone_or_changed_is_said_to_be(kind: str, n: int) -> None:
    for damage in (remove(kind, n), change(kind, n)):
        store = MemoryStore()
        make_examined(store)
        damage(store)
        html = Parsed(render(page_from(store), TOLD))
        assert [tag.attributes["id"] for tag in html.all("section")] == SECTIONS
        if kind != "checkpoint":  # whose bytes are read by `raykit check`
            assert re.search(r"MISSING|CHANGED|missing|changed", section(html, "evidence"))


def test_an_experiment_that_was_never_launched_has_a_page() -> None:
    maker = QcMaker(MemoryStore())
    maker.freeze()
    maker.store.delete(layout.run_record("digits", "main"))
    html = parsed(maker.store)
    assert "nothing was launched" in section(html, "now")
    assert "There is no checkpoint yet." in section(html, "checkpoints")


def test_a_run_that_has_only_begun_has_a_page() -> None:
    maker = QcMaker(MemoryStore())
    maker.freeze()
    maker.launch()
    html = parsed(maker.store)
    assert "nothing is evaluated yet" in section(html, "now")
    assert "No ratio is recorded yet." in section(html, "learning")
    maker.begin()
    html = parsed(maker.store)
    assert cells(html, "verdict")[0].attributes["class"] == "missing"
    assert "no end is known" in section(html, "evidence")


# --- size ---------------------------------------------------------------------------------------------------


def test_a_long_run_with_many_strata_is_a_bounded_page() -> None:
    store = MemoryStore()
    make_examined(store)
    page = page_from(store)
    assert page.qc is not None
    many = {f"stratum {n}": 0.3 for n in range(80)}
    metrics = {f"metric {n}": Score(value=0.3, strata=many, better="less") for n in range(40)}
    first = page.standings[1]
    assert first.receipt is not None
    standings = []
    for update in range(0, 200_000, 1000):
        receipt = first.receipt.model_copy(
            update={"update": update, "metrics": first.receipt.metrics | metrics}
        )
        said = replace(first.said, receipt=receipt)
        standings.append(replace(first, said=said, wanted=replace(first.wanted, update=update)))
    suite = page.qc.suite.model_copy(update={"fail": {"ratio": "> 0.35", "metric 0": "> 1"}})
    backlog = Backlog(suite=suite.digest, standings=tuple(standings), counts={"done": len(standings)})
    rows = 100_000
    learning = replace(
        page.learning,
        updates=tuple(range(1, rows + 1)),
        ratios={"recon": tuple(0.1 + (n % 7) / 100 for n in range(rows))},
    )
    whole = replace(page, qc=replace(page.qc, suite=suite, backlog=backlog), learning=learning)
    html = render(whole, TOLD)
    assert len(html.encode()) < 3_000_000
    assert "of 200 checkpoints are shown" in html and "strata, those that score worst" in html


def test_a_sheet_that_is_too_large_stays_in_the_store(mixed: QcMaker) -> None:
    page = parsed(mixed.store, sheet=b"\x89PNG\r\n\x1a\n" + b"\0" * 2_000_000)
    assert page.all("img") == []
    assert "The contact sheet is too large for a page." in section(page, "qc")


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 1000])
@pytest.mark.parametrize("keep", [(), (3, 4), tuple(range(50))])
def test_thinning_keeps_the_ends_and_what_matters(count: int, keep: tuple[int, ...]) -> None:
    kept = evenly(count, 10, [n for n in keep if n < count])
    assert kept == sorted(set(kept)) and len(kept) == min(count, 10)
    assert not count or (kept[0], kept[-1]) == (0, count - 1)
    assert len(keep) > 8 or all(n in kept for n in keep if n < count)


# --- shapes -------------------------------------------------------------------------------------------------


def test_a_line_has_gaps_and_dots_for_what_is_alone() -> None:
    x, y = chart.Scale(low=0, high=4), chart.Scale(low=0, high=1)
    values = np.array([0.0, 1.0, np.nan, 0.5, np.nan])
    assert chart.line(x, y, np.arange(5.0), values) == "M0.0 400.0L250.0 0.0M750.0 200.0h0"
    assert chart.dots(x, y, np.arange(5.0), values).count("h0") == 3
    assert chart.band(x, y, np.arange(5.0), values, values).count("Z") == 2


@pytest.mark.parametrize(
    "lines",
    [[0.0], [1.0, 1.0], [-1.0, 1.0], [1e-9, 1e9], [0.9, 0.99], [-5.0, -4.0], [1e300, 1e-300], [np.nan]],
)
def test_any_values_have_a_scale_with_ticks(lines: list[float]) -> None:
    scale = chart.value_scale([np.array(lines)])
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 30 and scale.low < scale.high
    assert all(0 <= scale.percent(tick) <= 100.0001 for tick in ticks)
    assert np.isfinite(scale.percents(np.array([value for value in lines if value == value]))).all()


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def raykit_(capsys: pytest.CaptureFixture[str]) -> Iterator[Raykit]:
    yield calls(capsys)


def test_the_command_writes_the_page_and_says_where(tmp_path: Path, raykit_: Raykit) -> None:
    root = tmp_path / "store"
    maker = make_trained(QcMaker(LocalStore(str(root))))
    for update in (0, 10):
        maker.examine(update, pictures={"panels.png": panels_of(0.3)})
    out = tmp_path / "page.html"
    called = raykit_("report", "digits", "--root", str(root), "-o", str(out))
    assert called.code == 0, called.err
    stored = root / layout.report("digits", "index.html")
    assert str(stored) in called.out and str(out) in called.out
    for file in (stored, out):
        html = Parsed(file.read_text("utf-8"))
        assert html.all("img", "sheet")[0].attributes["src"].startswith("data:image/png;base64,")
        assert "raykit qc run digits" in html.all("div", "needed")[0].text
    assert [item.name for item in tmp_path.iterdir() if item.suffix != ".html"] == ["store"]
    assert (root / layout.qc_picture("digits", "qc-ratio.png")).is_file()
    assert raykit_("check", str(root)).code == 0  # derived files break no promise


def test_a_store_that_one_may_only_read_still_gives_a_page(
    tmp_path: Path, raykit_: Raykit, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = tmp_path / "store", tmp_path / "page.html"
    maker = make_trained(QcMaker(LocalStore(str(root))))
    maker.examine(0, pictures={"panels.png": panels_of(0.3)})

    def refuse(self: LocalStore, key: str, data: Any) -> None:
        raise StoreUnavailableError(f"{key}: access denied")

    monkeypatch.setattr(LocalStore, "put_derived", refuse)
    called = raykit_("report", "digits", "--root", str(root), "-o", str(out))
    assert called.code == 0 and "the page could not be kept in the store" in called.out
    assert len(Parsed(out.read_text("utf-8")).all("img", "sheet")) == 1
    assert raykit_("report", "digits", "--root", str(root)).code == StoreUnavailableError.exit_code


def test_the_facts_of_a_page_as_json(tmp_path: Path, raykit_: Raykit) -> None:
    root = tmp_path / "store"
    make_examined(LocalStore(str(root)))
    called = raykit_("report", "digits", "--root", str(root), "--json")
    facts = called.json
    assert facts["page"] == layout.report("digits", "index.html") and facts["damaged"] == []
    assert facts["state"] == "completed" and facts["qc"]["complete"] is True
    assert facts["updates"] == 40 and "qc-ratio.png" in facts["pictures"]
    assert json.dumps(facts)


def test_again_gives_the_same_page(tmp_path: Path, raykit_: Raykit) -> None:
    store = MemoryStore()
    make_examined(store)
    assert render(page_from(store), TOLD) == render(page_from(store), TOLD)


@pytest.mark.parametrize("name", ["nobody", "../../etc", "digits/other"])
def test_an_experiment_that_is_not_there_is_refused(tmp_path: Path, raykit_: Raykit, name: str) -> None:
    root = tmp_path / "store"
    make_examined(LocalStore(str(root)))
    called = raykit_("report", name, "--root", str(root))
    assert called.code == 2 and called.out == ""


def test_a_file_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path, raykit_: Raykit) -> None:
    root = tmp_path / "store"
    make_examined(LocalStore(str(root)))
    called = raykit_(
        "report", "digits", "--root", str(root), "-o", str(tmp_path / "nowhere" / "x.html"), "--json"
    )
    assert called.code == 2 and called.error["field"] == "--output"
    assert [item.name for item in tmp_path.iterdir()] == ["store"]


def test_a_page_of_nothing_that_took_time_has_no_timeline() -> None:
    maker = QcMaker(MemoryStore())
    maker.freeze()
    maker.store.delete(layout.run_record("digits", "main"))
    page = page_from(maker.store)
    assert timeline.timeline_of(page) is None
    assert evidence.gates(page) is None
