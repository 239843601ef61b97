"""Every benchmark, one after another, in one table.

    python -m benchmarks.run

Takes about twenty-five minutes and wants an otherwise idle machine. Exit code 1 if a bar was missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks import (
    directive,
    generate,
    help_time,
    history_cost,
    ledger,
    qc,
    qc_beside,
    save_time,
    search,
    step_time,
)
from benchmarks.figures import Figure, main


def measure() -> Iterator[Figure]:
    return (
        figure
        for benchmark in (
            directive,
            generate,
            help_time,
            history_cost,
            ledger,
            qc,
            qc_beside,
            save_time,
            search,
            step_time,
        )
        for figure in benchmark.measure()
    )


if __name__ == "__main__":
    sys.exit(main(measure))
