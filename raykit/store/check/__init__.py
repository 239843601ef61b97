"""`raykit check`: the whole store against what it promises. Reads only; never repairs.

    report     what was found: findings, orphans, unknown keys
    rules      what a run's log may say, in which order; pure
    people     what the logs of experiments and of the fleet may say; pure
    view       what is there, and what has been named of it
    logs       one log: entries, chain, holes, snapshot
    runs       one run: its record, and every object that its log names
    qc         the examinations of one experiment, and what people say of them
    generation the synthetic sets of one experiment, and what its log says of them
    units      one contract of a set: its units, their rows, its manifest
    inputs     what sets are made from
    attempts   claims, failures, and what attempts have made
    money      accounts: their ledgers (held against `raykit.budget.audit`), and who belongs to which
    candidates the registry of the root, and adopted weights
    search     the searches of one experiment: their tables, their logs, and the runs of their rows
    contents   objects whose key holds a digest
    walk       all of it, in an order in which a store may change meanwhile

Findings are broken promises. Orphans are objects that nothing names: what a killed writer left, harmless and
never part of anything. Unknown keys are not raykit's. The loss of the newest entries of a log that is still
being written cannot be seen; once the log has come to rest, its snapshot shows it.
"""

from __future__ import annotations

from raykit.store.check.report import Finding, Report
from raykit.store.check.walk import check

__all__ = ["Finding", "Report", "check"]
