"""The registry read as states: what is known of each candidate, who decided what, what a switch would cost. Pure.

Observed, recommended and approved are told apart; production is one more thing, and choosing one candidate says nothing
of keeping or discarding another.
"""

from __future__ import annotations
