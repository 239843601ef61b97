"""A headless Chromium, told what to do over its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",  # root has no other way; what is opened is ours
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)
DEADLINE_S: Final = 60.0
POLL_S: Final = 0.1


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call the protocol; what it answers."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(DEADLINE_S):
            while True:
                heard: dict[str, Any] = await self._socket.receive_json()
                if heard.get("id") == number:
                    if "error" in heard:
                        raise RuntimeError(f"{method}: {heard['error']['message']}")
                    result: dict[str, Any] = heard["result"]
                    return result

    async def cookie(self, url: str, name: str, value: str) -> None:
        """Set one, as the server would."""
        await self.tell("Network.setCookie", url=url, name=name, value=value)

    async def open(self, url: str, *, width: int, height: int, scale: float = 1.0) -> None:
        """Go there, in a window of that size; what is seen of it is scaled."""
        await self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        await self.tell("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """What a script comes to in the page."""
        found = await self.tell("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    async def wait(self, script: str, *, timeout_s: float = DEADLINE_S) -> bool:
        """Until a script is true in the page; False if it never was."""
        end = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < end:
            with contextlib.suppress(RuntimeError):  # between two pages there is nothing to ask
                if await self.run(script):
                    return True
            await asyncio.sleep(POLL_S)
        return False

    async def shoot(self, file: Path) -> None:
        """Keep what is seen."""
        found = await self.tell("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(found["data"]))


@contextlib.asynccontextmanager
async def page(folder: Path) -> AsyncIterator[Page]:
    """A tab of a browser whose profile is in `folder`; both end with the block."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise SystemExit(f"no browser is installed: none of {', '.join(BROWSERS)}")
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=log,
            stderr=log,
        )
    try:
        port = await _port(folder / "profile" / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tab = next(each for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


async def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if process.poll() is not None:
                raise SystemExit(f"the browser has ended with {process.returncode}")
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int(file.read_text().split()[0])
            await asyncio.sleep(POLL_S)
