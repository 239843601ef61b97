"""The page in a real browser: it renders, asks nobody for anything, fits a phone, and follows light and dark."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from makeqc import QcMaker, failed, make_trained
from PIL import Image
from test_report_page import ATTRIBUTES, HOSTILE, TAGS, TOLD, Hostile, Parsed, page_from, panels_of

from raykit.records import Score
from raykit.report.page import render
from raykit.report.qc_files import SHEET, put_pictures
from raykit.testing.memory import MemoryStore

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
TIMEOUT_S = 60

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser is installed: none of {', '.join(BROWSERS)}"
)

QUIET = (
    "--headless=new",
    "--no-sandbox",  # root has no other way; what is opened is ours
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-pings",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # nor does the browser itself reach anybody
)


@dataclass(frozen=True)
class Browser:
    """A browser with a profile of its own."""

    folder: Path

    def run(self, page: Path, *options: str) -> tuple[str, str]:
        """Open a page; what it prints, and what it says."""
        assert BROWSER is not None
        command = [BROWSER, *QUIET, f"--user-data-dir={self.folder / 'profile'}", *options, page.as_uri()]
        environment = {**os.environ, "HOME": str(self.folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        done = subprocess.run(
            command, capture_output=True, timeout=TIMEOUT_S, env=environment, check=True, text=True
        )
        return done.stdout, done.stderr

    def dom(self, page: Path, *options: str) -> str:
        return self.run(page, "--dump-dom", *options)[0]

    def shot(self, page: Path, width: int, height: int, *options: str) -> np.ndarray:  # type: ignore[type-arg]
        out = self.folder / "shot.png"
        self.run(page, f"--screenshot={out}", f"--window-size={width},{height}", *options)
        return np.asarray(Image.open(io.BytesIO(out.read_bytes())).convert("RGB"))


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything: curves, a grid, charts and a contact sheet."""
    maker = make_trained(QcMaker(MemoryStore()))
    for update in (0, 10, 20):
        maker.examine(update, pictures={"panels.png": panels_of(0.3)})
    maker.examine(30, ratio=0.41, findings=[failed()])
    maker.review(0, 10)
    found = page_from(maker.store)
    assert found.qc is not None and found.roster is not None
    pictures = put_pictures(
        maker.store, "digits", suite=found.qc.suite, roster=found.roster, standings=found.standings
    )
    sheet = maker.store.get(pictures[SHEET])
    file = tmp_path_factory.mktemp("page") / "index.html"
    file.write_text(render(found, TOLD, sheet=sheet), "utf-8")
    return file


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    maker = make_trained(Hostile(MemoryStore()))
    maker.examine(0, metrics={HOSTILE: Score(value=0.2, strata={HOSTILE: 0.1, "b": 0.2}, better="less")})
    maker.review(
        0, by=HOSTILE, note="<img src=http://evil.example/x.png><script>document.title='owned'</script>"
    )
    file = tmp_path_factory.mktemp("hostile") / "index.html"
    file.write_text(render(page_from(maker.store), TOLD), "utf-8")
    yield file


REQUEST = re.compile(r'"initiator":"(?P<initiator>[^"]*)".*?"url":"(?P<url>[^"]*)"')


def requested(log: Path) -> set[str]:
    """Every URL that a page asked for, of the browser's net log; what the browser itself asks for has no initiator."""
    text = log.read_text("utf-8", "replace")
    assert '"constants"' in text
    return {found["url"] for found in REQUEST.finditer(text) if found["initiator"] != "not an origin"}


def test_the_page_renders_and_asks_nobody_for_anything(browser: Browser, page: Path, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    dom, said = browser.run(page, "--dump-dom", "--enable-logging=stderr", f"--log-net-log={log}")
    assert dom.count("<section") == 8 and dom.count("<svg") >= 4 and "data:image/png;base64," in dom
    assert "You are needed" in dom and "no skill" in dom
    assert not re.findall(r"CONSOLE.*", said)
    assert {url for url in requested(log) if not url.startswith("data:")} == set()


def test_hostile_words_do_nothing_in_a_browser(browser: Browser, hostile_page: Path, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    dom, said = browser.run(hostile_page, "--dump-dom", "--enable-logging=stderr", f"--log-net-log={log}")
    found = Parsed(dom)
    assert found.one("title").text == "digits: completed"
    assert {tag.name for tag in found.tags} <= TAGS
    assert {name for tag in found.tags for name in tag.attributes} <= ATTRIBUTES
    assert not re.findall(r"CONSOLE.*", said)
    assert {url for url in requested(log) if not url.startswith("data:")} == set()


def test_the_policy_is_one_that_a_browser_keeps(browser: Browser, page: Path, tmp_path: Path) -> None:
    """Were anything ever to slip through the escaping, it would still not run or load."""
    slipped = "<script>document.title='owned'</script><img src=http://evil.example/x.png></main>"
    broken = page.read_text("utf-8").replace("</main>", slipped)
    without = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", broken)
    assert without != broken
    titles, asked = [], []
    for name, html in (("with", broken), ("without", without)):
        file, log = tmp_path / f"{name}.html", tmp_path / f"{name}.json"
        file.write_text(html, "utf-8")
        dom = browser.dom(file, f"--log-net-log={log}")
        titles.append(re.search("<title>(.*)</title>", dom)[1])  # type: ignore[index]
        asked.append(any("evil.example" in url for url in requested(log)))
    assert titles == ["digits: completed", "owned"]
    assert asked == [False, True]  # the second one shows that it would be seen


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, page: Path, tmp_path: Path, width: int) -> None:
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<iframe id=f style='border:0;width:{width}px;height:900px' src='{page.as_uri()}'></iframe><pre id=o></pre>"
        "<script>onload = () => {"
        " const root = document.getElementById('f').contentDocument.documentElement;"
        " document.getElementById('o').textContent = `${root.scrollWidth} of ${root.clientWidth}`;"
        "}</script>",
        "utf-8",
    )
    dom = browser.dom(frame, "--allow-file-access-from-files", "--virtual-time-budget=3000")
    found = re.search(r"(\d+) of (\d+)</pre>", dom)
    assert found is not None, dom[-500:]
    assert found[1] == found[2]


@pytest.mark.parametrize(("width", "whole"), [(1300, True), (360, False)])
def test_eleven_checkpoints_are_seen_at_once_on_a_wide_screen(
    browser: Browser, tmp_path: Path, width: int, whole: bool
) -> None:
    # covers QC-21
    maker = make_trained(QcMaker(MemoryStore(), updates=100))
    for update in range(0, 101, 10):
        maker.examine(update)
        maker.review(update, by="mira lindqvist", scripted=True)
    file, frame = tmp_path / "page.html", tmp_path / "frame.html"
    file.write_text(render(page_from(maker.store), TOLD), "utf-8")
    frame.write_text(
        f"<iframe id=f style='border:0;width:{width}px;height:900px' src='{file.as_uri()}'></iframe><pre id=o></pre>"
        "<script>onload = () => {"
        " const grid = document.getElementById('f').contentDocument.querySelector('.scroll');"
        " const heads = grid.querySelectorAll('thead th').length;"
        " document.getElementById('o').textContent = `${heads}: ${grid.scrollWidth} of ${grid.clientWidth}`;"
        "}</script>",
        "utf-8",
    )
    dom = browser.dom(frame, "--allow-file-access-from-files", "--virtual-time-budget=3000")
    found = re.search(r"(\d+): (\d+) of (\d+)</pre>", dom)
    assert found is not None, dom[-500:]
    assert found[1] == "12"
    assert (int(found[2]) <= int(found[3])) is whole, "it scrolls inside where it is wider than the screen"


def test_it_follows_light_and_dark(browser: Browser, page: Path) -> None:
    light = browser.shot(page, 900, 600, "--blink-settings=preferredColorScheme=1")
    dark = browser.shot(page, 900, 600, "--blink-settings=preferredColorScheme=0")
    assert tuple(light[-1, 0]) == (255, 255, 255) and tuple(dark[-1, 0]) == (0x14, 0x14, 0x16)
    for image in (light, dark):  # and there is something to read on it
        contrast = np.abs(image.astype(int) - image[-1, 0].astype(int)).max(axis=2)
        assert (contrast > 120).mean() > 0.01
