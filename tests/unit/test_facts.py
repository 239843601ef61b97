"""What a difference in the facts of two attempts leaves of exactness.

FAULT-A11
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from raykit.train import facts
from raykit.train.gang import alone


def test_a_fact_that_was_not_recorded_is_named_and_lowers_nothing() -> None:
    now = facts.here(alone(), 1)
    was = {name: fact for name, fact in now.items() if name != "hash_seed"}
    (found,) = facts.of_facts(was, now)
    assert (found.what, found.was, found.allows) == ("hash_seed", "not recorded", "exact")


def test_a_fact_that_is_another_one_or_is_recorded_no_more_lowers_the_class() -> None:
    for now in ({"torch": "2"}, {}):
        (found,) = facts.of_facts({"torch": "1"}, now)
        assert found.allows == "state-exact"
    (found,) = facts.of_facts({"world_size": "2"}, {"world_size": "1"})
    assert found.allows == "order-exact"


@pytest.mark.parametrize(("seed", "fact"), [("0", "0"), ("77", "77"), (None, "random")])
def test_what_a_process_hashes_text_with_is_a_fact(seed: str | None, fact: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    if seed is not None:
        environment["PYTHONHASHSEED"] = seed
    code = "from raykit.train import facts; print(facts._hash_seed())"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == fact


def test_a_launch_expects_the_seed_that_it_gives_its_workers() -> None:
    run: Any = SimpleNamespace(workers=2, threads=1, device="cpu")
    plan: Any = SimpleNamespace(run=run)
    assert facts.expected(plan, {}, there=0)["hash_seed"] == "0"
