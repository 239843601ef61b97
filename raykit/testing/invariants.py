"""The one function that every test calls at its end."""

from __future__ import annotations

from raykit.errors import CorruptError
from raykit.store.base import ObjectStore
from raykit.store.check import Report, check


def check_invariants(store: ObjectStore) -> Report:
    """Read every byte of the store and hold it against all invariants; the report names orphans.

    Raises:
        CorruptError: one or more are broken; the message has them all.
        StoreUnavailableError: the store did not answer.
    """
    report = check(store, read_data=True)
    if not report.ok:
        lines = [f"{finding.invariant}  {finding.rule}: {finding.found}" for finding in report.findings]
        raise CorruptError("\n".join([f"{store.url} breaks {len(lines)} promises:", *lines]))
    return report
