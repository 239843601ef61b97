"""SIGTERM and Ctrl-C as a wish, in words that fit where they are read."""

from __future__ import annotations

import os
import signal

import pytest

from raykit.fleet.session.here import JOB_CONFIG
from raykit.fleet.signals import Signals


@pytest.mark.parametrize("in_job", [False, True])
def test_a_job_is_not_told_to_press_keys(monkeypatch: pytest.MonkeyPatch, in_job: bool) -> None:
    """covers RAY-16: a job is stopped from outside, and has no terminal"""
    for name in (JOB_CONFIG, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
        if in_job:
            monkeypatch.setenv(name, "{}")
    said: list[str] = []
    signals = Signals(said.append)
    with signals.handled():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.come == "SIGTERM" and said[0].startswith("SIGTERM: committing at the next update")
    assert ("Ctrl-C" in said[0]) == (not in_job)
