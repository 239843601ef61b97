"""Take the pictures of the dashboard that are in `docs/pictures`, of a real run:  python scripts/screenshots.py

A Prometheus with the files of `cluster/prometheus`, a stand-in for Grafana, `raykit dev up`, and the bundled digits as
a submitted job: longer than they ship, and at a price, so that there is something to see. Its QC is paused for a while.
Everything that is started here is ended here. Needs `prometheus` and `chromium`; takes about five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import urlopen

from browser import Page, page
from grafana_standin import Boards, serve
from PIL import Image

ROOT: Final = Path(__file__).parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
JOB: Final = ROOT / "jobs" / "digits"
EDITS: Final = {
    "updates          = 2000": "updates          = 40000",
    "checkpoint_every = 200": "checkpoint_every = 1000",
    "every      = 200": "every      = 2000",
    "every = 100,": "every = 1000,",
    "unit_rows = 100": "unit_rows = 100\nwall_h    = 0.1",
    "ceiling_usd = 1.0 ": "ceiling_usd = 4.0 ",
}
PRICE: Final = """
[pools.train]
gpus         = 0
usd_per_hour = { rate = 6.0, source = "an example", billed = "resource" }
"""
COOKIE: Final = "ray-authentication-token"
"""Where the dashboard's page keeps the token that it asks for."""
DEADLINE_S: Final = 300.0
MOST_BYTES: Final = 300_000
WIDTH: Final = 1440


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs while pictures are taken."""

    folder: Path
    prometheus: str
    grafana: str

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def raykit(self, *arguments: str) -> str:
        """Run a command to its end; what it printed."""
        done = subprocess.run(
            self._command(*arguments), capture_output=True, text=True, env=self._environment()
        )
        print(f"  raykit {' '.join(arguments)}: exit {done.returncode}", flush=True)
        return done.stdout

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run a command beside this."""
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(
                self._command(*arguments), stdout=log, stderr=log, env=self._environment()
            )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What Prometheus answers now."""
        with urlopen(f"{self.prometheus}/api/v1/query?query={quote(expression)}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def _command(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).parent / "raykit"), *arguments]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "TMPDIR": str(self.folder),
            "RAYKIT_ROOT": str(self.store),
            "RAYKIT_PERSON": "ada",
            "RAY_PROMETHEUS_HOST": self.prometheus,
            "RAY_GRAFANA_HOST": self.grafana,
        }


def until(what: str, holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    print(f"  waiting for {what}", flush=True)
    end = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"waited {DEADLINE_S:.0f} s for {what}")
        time.sleep(0.5)


# --- what is started ----------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """A Prometheus that scrapes what is linked into `folder/config/targets`."""
    shutil.copytree(ROOT / "cluster" / "prometheus", folder / "config")
    (folder / "config" / "targets").mkdir()
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={folder}/config/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def standin(folders: list[Path], source: str) -> Iterator[str]:
    """The stand-in for Grafana, in a thread of its own."""
    port = free_port()
    server = serve(Boards(folders, source), port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def dev_cluster(stage: Stage) -> Iterator[dict[str, Any]]:
    """`raykit dev up`, and down again."""
    stage.raykit("dev", "up")
    try:
        up: dict[str, Any] = json.loads(stage.raykit("dev", "status", "--json"))["up"]
        until("what there is to scrape", Path(up["targets"]).exists)
        (stage.folder / "config" / "targets" / "dev.json").symlink_to(up["targets"])
        yield up
    finally:
        stage.raykit("dev", "down", "--now")


# --- pictures -----------------------------------------------------------------------------------------------


async def shoot(
    tab: Page,
    url: str,
    name: str,
    ready: str,
    *,
    width: int = WIDTH,
    height: int = 900,
    scale: float = 1.0,
    rest_s: float = 1.5,
) -> None:
    """One picture, once a script says that the page is there."""
    await tab.open(url, width=width, height=height, scale=scale)
    if not await tab.wait(ready):
        print(f"  {name}: the page never said {ready}", flush=True)
    await asyncio.sleep(rest_s)  # what it draws then has no sign of its own
    file = PICTURES / f"{name}.png"
    await tab.shoot(file)
    slim(file)
    print(f"  {file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB", flush=True)


def slim(file: Path) -> None:
    """Fewer colours: these are drawings, and no photographs."""
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT).save(file, optimize=True)
    if file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file} is larger than {MOST_BYTES} bytes")


def has(text: str) -> str:
    """A script: whether the page shows that text."""
    return f"document.body && document.body.innerText.includes({json.dumps(text)})"


async def of_ray(tab: Page, up: dict[str, Any], submission: str) -> None:
    """Ray's own pages."""
    url = up["address"]
    await tab.cookie(url, COOKIE, Path(up["token_path"]).read_text().strip())
    await shoot(tab, f"{url}/#/jobs", "ray-jobs", has(submission), height=580)
    await shoot(tab, f"{url}/#/jobs/{submission}", "ray-job", has(submission), height=900)
    await shoot(
        tab, f"{url}/#/actors", "ray-actors", has("raykit-budget"), width=1900, height=1420, scale=0.75
    )
    await shoot(
        tab, f"{url}/#/metrics", "ray-metrics", "document.querySelectorAll('iframe').length > 0", rest_s=5.0
    )


async def of_raykit(tab: Page, stage: Stage) -> None:
    """raykit's dashboard, and the Prometheus behind it."""
    board = f"{stage.grafana}/d/raykit?from=now-3m&to=now"
    await shoot(tab, board, "raykit-dashboard", has("Save time"), height=1810)
    expression = "max by (experiment, state) (ray_raykit_updates)"
    asked = f"g0.expr={quote(expression)}&g0.tab=0&g0.range_input=3m"
    ready = has('experiment="digits-vae"')
    await shoot(tab, f"{stage.prometheus}/graph?{asked}", "prometheus", ready, height=840, rest_s=3.0)


def plan_of(stage: Stage) -> Path:
    """The bundled plan, with something to see."""
    shutil.copytree(JOB, stage.folder / "digits")
    plan = stage.folder / "digits" / "plan.toml"
    text = plan.read_text()
    for before, after in EDITS.items():
        if before not in text:
            raise SystemExit(f"{JOB}/plan.toml has no {before!r} any more")
        text = text.replace(before, after)
    plan.write_text(text + PRICE)
    return plan


def running(job: subprocess.Popen[bytes]) -> bool:
    """Whether the job is still followed; ends everything if not."""
    if job.poll() is not None:
        raise SystemExit(f"raykit submit has ended with {job.returncode}: see submit.log")
    return True


async def take(stage: Stage, up: dict[str, Any]) -> None:
    """Submit, wait for something to see, and take every picture."""
    job = stage.begin("submit", str(plan_of(stage)), "--address", "auto")
    try:
        until("training", lambda: running(job) and stage.query('ray_raykit_updates{state="recorded"} > 100'))
        time.sleep(20)
        stage.raykit("pause", "role:qc", "--reason", "the GPUs are promised to inference")
        until("a pause that is seen", lambda: stage.query('ray_raykit_paused{role="qc",kind="person"} == 1'))
        time.sleep(20)
        stage.raykit("resume", "role:qc")
        until("no pause any more", lambda: stage.query('sum(ray_raykit_paused{role="qc"}) == 0'))
        until("its worker", lambda: stage.query('ray_raykit_fleet_workers{role="qc",state="running"} == 1'))
        until("checks since then", lambda: stage.query("delta(ray_raykit_qc_units_total[20s]) > 0"))
        time.sleep(30)
        submission = json.loads(stage.raykit("dev", "status", "--json"))["jobs"][0]["submission_id"]
        async with page(stage.folder) as tab:
            await of_ray(tab, up, submission)
            await of_raykit(tab, stage)
    finally:
        stage.raykit("cancel", "digits-vae", "--reason", "the pictures are taken")
        job.wait()
        print((stage.folder / "submit.log").read_text()[-3000:])


def main() -> None:
    argparse.ArgumentParser(description="Take the pictures of the dashboard.").parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shots-")))
        source = stack.enter_context(prometheus(folder))
        boards = [ROOT / "cluster" / "grafana", folder / "boards"]
        grafana = stack.enter_context(standin(boards, source))
        stage = Stage(folder, source, grafana)
        up = stack.enter_context(dev_cluster(stage))
        of_ray_itself = Path(up["targets"]).parent / "session_latest" / "metrics" / "grafana" / "dashboards"
        (folder / "boards").symlink_to(of_ray_itself)
        asyncio.run(take(stage, up))


if __name__ == "__main__":
    main()
