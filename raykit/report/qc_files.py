"""The pictures of a suite's examinations in the store. Derived files: the last drawing wins, none stops anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from matplotlib.figure import Figure

from raykit.errors import CorruptError
from raykit.qc.backlog import Standing
from raykit.records import Roster, Suite
from raykit.report import drawing
from raykit.report.qc_charts import qc_figures
from raykit.report.sheet import PANELS, Column, State, draw_sheet, thinned
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.qc import Examinations

SHEET = "contact-sheet.png"


def put_pictures(
    store: ObjectStore,
    experiment: str,
    *,
    suite: Suite,
    roster: Roster,
    standings: Sequence[Standing],
    title: str | None = None,
    prefix: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """Draw every chart and the contact sheet anew; by file, its key. `say` hears of what cannot be drawn.

    `prefix` begins the name of every file: where several runs of an experiment are examined, each has its own.

    Nothing is drawn while there is no receipt, and nothing is raised: no picture is worth a run.
    """
    drawn: dict[str, str] = {}
    try:
        for name, draw in _all(store, experiment, suite, roster, standings, title or experiment, say):
            file = prefix + name
            try:
                key = layout.qc_picture(experiment, file)
                store.put_derived(key, draw())
                drawn[file] = key
            except Exception as error:  # noqa: BLE001 - a picture that cannot be drawn is no reason to stop anything
                say(f"{file} could not be drawn: {error}")
    except Exception as error:  # noqa: BLE001 - nor are receipts that nobody can make pictures of
        say(f"QC pictures could not be drawn: {error}")
    return drawn


def _all(
    store: ObjectStore,
    experiment: str,
    suite: Suite,
    roster: Roster,
    standings: Sequence[Standing],
    title: str,
    say: Callable[[str], None],
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for file, figure in qc_figures(standings, suite, title=title):
        yield file, _png_of(figure)
    if any(_has_panels(each) for each in standings):
        yield SHEET, lambda: _sheet(store, experiment, roster, standings, title, say)


def sheet_png(
    store: ObjectStore, experiment: str, roster: Roster, standings: Sequence[Standing], *, title: str
) -> bytes | None:
    """The contact sheet by itself; None if no checkpoint has panels that can be shown.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    try:
        return _sheet(store, experiment, roster, standings, title, lambda _: None)
    except ValueError:
        return None


def _sheet(
    store: ObjectStore,
    experiment: str,
    roster: Roster,
    standings: Sequence[Standing],
    title: str,
    say: Callable[[str], None],
) -> bytes:
    columns = columns_of(Examinations(store, experiment), standings, say)
    return draw_sheet(roster, list(columns), title=title)


def _png_of(figure: Callable[[], Figure]) -> Callable[[], bytes]:
    return lambda: drawing.png(figure())


def columns_of(
    examinations: Examinations, standings: Sequence[Standing], say: Callable[[str], None]
) -> Iterator[Column]:
    """The checkpoints of the contact sheet; panels are read only of those that will be on it.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    bare = {each.update: Column(update=each.update, state=_state(each), panels=None) for each in standings}
    on_it = {column.update for column in thinned(list(bare.values()))}
    for each in standings:
        panels = _panels(examinations, each, say) if each.update in on_it else None
        yield Column(update=each.update, state=_state(each), panels=panels)


def _state(found: Standing) -> State:
    if found.receipt is None:
        return "waiting"
    return "failed" if found.red else "passed"


def _has_panels(found: Standing) -> bool:
    return found.receipt is not None and any(each.name == PANELS for each in found.receipt.artifacts)


def _panels(examinations: Examinations, found: Standing, say: Callable[[str], None]) -> bytes | None:
    """The panels of a receipt; None if it has none, or if those that are there are not its own."""
    receipt = found.receipt
    if receipt is None:
        return None
    try:
        return next(
            (
                examinations.artifact(receipt, artifact)
                for artifact in receipt.artifacts
                if artifact.name == PANELS
            ),
            None,
        )
    except CorruptError as error:
        say(error.message)
        return None
