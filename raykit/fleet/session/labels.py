"""Nodes with labels: what a plan's pools ask of a cluster, and whether it has any such node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import ray

from raykit.errors import GateError
from raykit.fleet.session.joined import may_grow
from raykit.pauses import Role
from raykit.plan import Plan
from raykit.read.sizing import pool_of

Labels = Mapping[str, Mapping[str, str]]
"""By pool: the labels that a node of it has."""


_OPERATORS: Final = ("!", "in(")
"""Ray's own, in a value: which nodes they leave is for Ray to say."""


def labels_of(plan: Plan, *pools: Role) -> dict[str, dict[str, str]]:
    """What a plan asks of the nodes of these pools, by pool; nothing of those that ask for nothing."""
    asked = {name: pool_of(plan, name) for name in pools}
    return {name: dict(pool.nodes) for name, pool in asked.items() if pool is not None and pool.nodes}


def require_labels(labels: Labels) -> None:
    """See that the cluster which this process is connected to has a node for each pool, or grows by itself.

    Raises:
        GateError: it has none: the pool would wait for ever.
    """
    known = [node.get("Labels") or {} for node in ray.nodes() if node.get("Alive")]
    for pool, asked in labels.items():
        wanted = {key: value for key, value in asked.items() if not value.startswith(_OPERATORS)}
        if not may_grow() and not any(wanted.items() <= has.items() for has in known):
            raise GateError(
                f"no node of the cluster has {_shown(wanted)}: pool {pool} would wait for ever",
                field=f"pools.{pool}.nodes",
                value=dict(wanted),
                rule="labels that a node of the cluster has",
                remedy=f"other labels: its nodes have {'; '.join(sorted({_shown(has) for has in known}))[:500]}",
            )


def require_no_labels(labels: Labels) -> None:
    """Let only a plan run in a private Ray that does not ask for nodes with labels.

    Raises:
        GateError: it does.
    """
    for pool, wanted in labels.items():
        raise GateError(
            f"pool {pool} asks for nodes with {_shown(wanted)}, and a launch without a cluster has this machine only",
            field=f"pools.{pool}.nodes",
            value=dict(wanted),
            rule="a cluster whose nodes have these labels",
            remedy="raykit submit PLAN --address URL",
        )


def _shown(labels: Mapping[str, str]) -> str:
    own = {key: value for key, value in labels.items() if key != "ray.io/node-id"}
    return ", ".join(f"{key} = {value}" for key, value in sorted(own.items())) or "no labels"
