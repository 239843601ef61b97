"""The registry read as states: what is known of each candidate, who decided what, what a switch would cost. Pure.

Observed, recommended and approved are told apart; production is one more thing, and choosing one candidate says nothing
of keeping or discarding another.

registry    the events of the log -> every candidate with its acts, and the one that is in production
evidence    surfaces with their authority; which difference displaces nobody
rules       which act the registry allows
retention   which checkpoints of a run could go, and why each other one stays
"""

from __future__ import annotations

from raykit.candidates.registry import Act, Candidate, Registry, State, Use, fold, read_registry

__all__ = ["Act", "Candidate", "Registry", "State", "Use", "fold", "read_registry"]
