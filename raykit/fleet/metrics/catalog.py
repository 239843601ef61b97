"""Every metric that raykit exports: its name, its labels, and what it says. Nothing else is exported.

Units are in the names, amounts of money are in the account's own unit, and no label holds an id: their values come from
a plan or from a closed list. Ray puts `ray_` before every name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from raykit.records import Unit

Kind = Literal["gauge", "counter", "histogram"]

UNIT_SUFFIX: Final[dict[Unit, str]] = {"usd": "usd", "accelerator-hours": "accelerator_hours"}

BOUNDARIES_S: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    says: str
    labels: tuple[str, ...]
    kind: Kind = "gauge"
    boundaries: tuple[float, ...] = ()
    """Of a histogram."""

    @property
    def exported(self) -> tuple[str, ...]:
        """The names under which Prometheus has it."""
        parts = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return tuple(f"ray_{self.name}{part}" for part in parts)


def _money(name: str, says: str, *labels: str, per_hour: bool = False) -> dict[Unit, Metric]:
    """The same metric for accounts in either unit."""
    end = "_per_hour" if per_hour else ""
    return {
        unit: Metric(f"raykit_{name}_{suffix}{end}", f"{says} In {suffix.replace('_', ' ')}.", labels)
        for unit, suffix in UNIT_SUFFIX.items()
    }


# --- money: said by whoever serves the account --------------------------------------------------------------

BUDGET = _money(
    "budget",
    "A line by state: planned, settled, reserved, remaining. Its kind is its purpose; confirmation and recovery are "
    "reserves.",
    "experiment",
    "line",
    "kind",
    "state",
)
CEILING = _money("ceiling", "What the plan may cost at most.", "experiment")
RESERVE_LEFT = _money(
    "reserve_left", "What is left for confirmation and recovery once all else is paid.", "experiment"
)
SPEND = _money(
    "spend",
    "What is held now costs this much in an hour, idle machines included.",
    "experiment",
    per_hour=True,
)

# --- who works, and who is paused ---------------------------------------------------------------------------

FLEET = Metric(
    "raykit_fleet_workers",
    "Workers of what runs now, by role and by what is asked of them; `paused` are places that are given back.",
    ("experiment", "role", "state"),
)
PAUSED = Metric(
    "raykit_paused", "1 where a pause is in force, by role and cause; else 0.", ("experiment", "role", "kind")
)

# --- a run --------------------------------------------------------------------------------------------------

RUN = Metric("raykit_run", "1 for the phase that the run is in, 0 for the others.", ("experiment", "state"))
UPDATES = Metric(
    "raykit_updates",
    "Updates that are planned, recorded in the history, and held by a checkpoint.",
    ("experiment", "state"),
)
UPDATES_PER_SECOND = Metric(
    "raykit_updates_per_second", "Pace of the last few hundred updates.", ("experiment",)
)
RATIO = Metric(
    "raykit_ratio", "Error of the main term over that of no skill: 1.0 is no skill.", ("experiment",)
)
TERM_RATIO = Metric(
    "raykit_term_ratio", "The same for each loss term that has a scale.", ("experiment", "term")
)
DEVELOPMENT = Metric(
    "raykit_development", "The newest evaluation of the development split, by metric.", ("experiment", "term")
)
SAVE_SECONDS = Metric("raykit_save_seconds", "What the newest checkpoint took to save.", ("experiment",))
SAVE_BLOCKED_SECONDS = Metric(
    "raykit_save_blocked_seconds", "How long training waited for it.", ("experiment",)
)
CHECKPOINT_BYTES = Metric("raykit_checkpoint_bytes", "Size of the newest checkpoint.", ("experiment",))
ATTEMPTS = Metric("raykit_attempts", "Attempts of the run so far, over all launches.", ("experiment",))

# --- QC -----------------------------------------------------------------------------------------------------

QC_REQUESTS = Metric("raykit_qc_requests", "Required QC requests by state.", ("experiment", "state"))
QC_OLDEST = Metric(
    "raykit_qc_oldest_pending_seconds", "How long the oldest open request has waited.", ("experiment",)
)
QC_UNITS = Metric("raykit_qc_units_total", "Checks that came to a receipt.", ("experiment",), "counter")
QC_UNIT_SECONDS = Metric(
    "raykit_qc_unit_seconds", "What one check took.", ("experiment",), "histogram", BOUNDARIES_S
)

# --- synthetic sets -----------------------------------------------------------------------------------------

SET_UNITS = Metric(
    "raykit_generate_units", "Units of a synthetic set by state.", ("experiment", "set", "state")
)
SET_ROWS = Metric(
    "raykit_generate_rows_total",
    "Rows that were published, by kind: produced, filtered, failed.",
    ("experiment", "set", "kind"),
    "counter",
)
SET_UNITS_MADE = Metric(
    "raykit_generate_units_total", "Units that were published.", ("experiment", "set"), "counter"
)
SET_UNIT_SECONDS = Metric(
    "raykit_generate_unit_seconds_total", "What they took, together.", ("experiment", "set"), "counter"
)

# --- a search -----------------------------------------------------------------------------------------------

TRIALS = Metric(
    "raykit_trials",
    "Rows of the registered table by kind (trial, repeat) and state: waiting, running, or one of the six ends.",
    ("experiment", "kind", "state"),
)
SEARCH_BEST = Metric(
    "raykit_search_best",
    "The best value of a completed row so far; nothing is picked by it.",
    ("experiment",),
)
SEARCH_REPORTS = Metric(
    "raykit_search_reports_total",
    "Development evaluations that the scheduler has heard.",
    ("experiment",),
    "counter",
)

METRICS: Final[tuple[Metric, ...]] = (
    *BUDGET.values(),
    *CEILING.values(),
    *RESERVE_LEFT.values(),
    *SPEND.values(),
    FLEET,
    PAUSED,
    RUN,
    UPDATES,
    UPDATES_PER_SECOND,
    RATIO,
    TERM_RATIO,
    DEVELOPMENT,
    SAVE_SECONDS,
    SAVE_BLOCKED_SECONDS,
    CHECKPOINT_BYTES,
    ATTEMPTS,
    QC_REQUESTS,
    QC_OLDEST,
    QC_UNITS,
    QC_UNIT_SECONDS,
    SET_UNITS,
    SET_ROWS,
    SET_UNITS_MADE,
    SET_UNIT_SECONDS,
    TRIALS,
    SEARCH_BEST,
    SEARCH_REPORTS,
)
"""All of them."""
