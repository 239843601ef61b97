"""What all tests share: the folder of test helpers on the path, and one nursery of ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from nursery import Nursery

# how fast a machine is that does other things meanwhile is no property of the code
settings.register_profile("raykit", deadline=None)
settings.load_profile("raykit")


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()
