"""The last line of a job: how its run ended, for the client that follows its log.

The Ray job itself ends well when the run was paused or refused: whoever retries failed jobs, as KubeRay does, would
build a new cluster for each try, and be refused again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

MARK: Final = "raykit-job-end "
ENDS_WELL: Final = frozenset({0, 3, 4})
"""Exit codes of a run after which a retry would only come to the same: done, refused, paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """How a run ended, as its job said."""

    launch: str
    exit_code: int

    def line(self) -> str:
        """As one line of a log."""
        return MARK + json.dumps({"launch": self.launch, "exit_code": self.exit_code}, sort_keys=True)


def last_of(log: str) -> Last | None:
    """What a job's log ends with; None if it does not say."""
    for line in reversed(log.splitlines()):
        if line.startswith(MARK):
            try:
                said = json.loads(line.removeprefix(MARK))
                return Last(launch=str(said["launch"]), exit_code=int(said["exit_code"]))
            except (ValueError, KeyError, TypeError):
                return None
    return None
