"""Which raykit the processes of a cluster's nodes really have: asked of each, before anything is started there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raykit.errors import GateError
from raykit.fleet.package import package_digest

ASK_S: Final = 60.0
MOST_NODES: Final = 64
"""Of a larger cluster only so many are asked."""


def require_same_raykit(say: Callable[[str], None]) -> None:
    """See that workers on the nodes of this process's cluster have the same raykit as this process.

    Raises:
        GateError: one has another, or none.
    """
    own = package_digest()
    nodes = [node for node in ray.nodes() if node.get("Alive")][:MOST_NODES]
    asked = {node["NodeID"]: _ask(node["NodeID"]) for node in nodes}
    there = 0
    for node in nodes:
        name = str(node.get("NodeManagerHostname") or node["NodeID"][:12])
        try:
            found = ray.get(asked[node["NodeID"]], timeout=ASK_S)
        except GetTimeoutError:
            say(f"node {name} has not said in {ASK_S:.0f} s which raykit it has")
            continue
        except RayError as error:
            found = _cause(error)
        if found != own:
            raise GateError(
                f"workers on node {name} have another raykit than this job: {found[:200]}, and not {own[:12]}",
                field="cluster",
                rule="the same raykit in every process of a run",
                remedy="raykit submit PLAN --address URL, which sends its own to every node",
            )
        there += 1
    say(f"raykit {own[:12]} on {there} node{'' if there == 1 else 's'}")


def _ask(node: str) -> ray.ObjectRef:
    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    asking = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(_which)
    return asking.remote()


def _which() -> str:
    return package_digest()


def _cause(error: RayError) -> str:
    """What the worker said, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
