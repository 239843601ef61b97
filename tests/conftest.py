"""What all tests share: the folder of test helpers on the path, and one nursery of ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from nursery import Nursery

# The same examples every time; how fast a machine is that does other things meanwhile is no property of the code.
settings.register_profile("raykit", deadline=None, derandomize=True)
# Other examples every time, and more of them: `make explore`. What it finds becomes an `@example`.
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("raykit")


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()
