"""A search as a process of its own: `python searchdrive.py PLAN ROOT [TOY]`, where TOY is JSON for an objective.

Its last line on stdout is JSON: how it ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from searchtoys import Toy

from raykit.errors import RaykitError
from raykit.fleet.search.driver import search
from raykit.fleet.site import site_of


def main(plan: str, root: str, toy: str = "") -> int:
    """Drive it; 0, 4 for one that goes on, or the code of what refused it."""
    try:
        outcome = search(
            site_of(Path(plan), root),
            tell=lambda glimpse: None,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            objective=Toy(**json.loads(toy)) if toy else None,
        )
    except RaykitError as error:
        print(json.dumps({"kind": error.kind, "message": str(error)}))
        return error.exit_code
    print(
        json.dumps({"counts": dict(outcome.counts), "already": outcome.already, "stopped": outcome.stopped})
    )
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
