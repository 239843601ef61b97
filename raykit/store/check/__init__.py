"""`raykit check`: the whole store against what it promises. Reads only; never repairs.

    report   what was found: findings, orphans, unknown keys
    rules    what a run's log may say, in which order; pure
    walk     every object: that it is there, is what its name or its event says, and is named by something

Findings are broken promises. Orphans are objects that nothing names: what a killed writer left, harmless and
never part of anything. Unknown keys are not raykit's. The loss of the newest entries of a log that is still
being written cannot be seen; once the log has come to rest, its snapshot shows it.
"""

from __future__ import annotations

from raykit.store.check.report import Finding, Report
from raykit.store.check.walk import check

__all__ = ["Finding", "Report", "check"]
