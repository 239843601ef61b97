"""Take the picture of a page of raykit that is in `docs/pictures`:

    python scripts/page_pictures.py STORE EXPERIMENT NAME [HEIGHT]

Writes the page of the experiment anew (`raykit report`), opens it from its file in a headless browser, and keeps what
is seen of it as `docs/pictures/NAME.png`. Needs `chromium`.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from browser import page

PICTURES: Final = Path(__file__).parent.parent / "docs" / "pictures"
WIDTH: Final = 1280
DRAWN: Final = """document.readyState === 'complete'
    && [...document.images].every(image => image.complete && image.naturalWidth)"""


async def shoot(file: Path, to: Path, *, height: int) -> None:
    """Keep the top of a page, once every picture in it is there."""
    with tempfile.TemporaryDirectory(prefix="shots-") as folder:
        async with page(Path(folder)) as tab:
            await tab.open(file.resolve().as_uri(), width=WIDTH, height=height)
            if not await tab.wait(DRAWN):
                raise SystemExit(f"{file}: not all of it could be drawn")
            await tab.shoot(to)


def main() -> None:
    said = argparse.ArgumentParser(description="Take the picture of a page.")
    said.add_argument("store")
    said.add_argument("experiment")
    said.add_argument("name")
    said.add_argument("height", type=int, nargs="?", default=1400)
    asked = said.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        file = Path(folder) / "index.html"
        command = [sys.executable, "-m", "raykit", "report", asked.experiment, "-o", str(file)]
        subprocess.run([*command, "--root", asked.store], check=True)
        asyncio.run(shoot(file, PICTURES / f"{asked.name}.png", height=asked.height))


if __name__ == "__main__":
    main()
