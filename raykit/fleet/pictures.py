"""The curves of a run, drawn while it goes on. Derived files: the last drawing wins, and none ends a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raykit.fleet.follow import Followed
from raykit.fleet.site import RUN, Site
from raykit.report.curves import draw_development, draw_fields, draw_ratio
from raykit.store import layout


class Pictures:
    """Draws what there are durable rows for; `say` hears of what cannot be drawn."""

    def __init__(self, site: Site, say: Callable[[str], None]) -> None:
        self._site = site
        self._say = say
        self.drawn: dict[str, str] = {}
        """By file: its key in the store."""

    def draw(self, seen: Followed) -> None:
        """Draw every picture anew."""
        for file, draw in self._all(seen):
            key = layout.curve(self._site.name, self._site.run, file)
            try:
                self._site.store.put_derived(key, draw())
                self.drawn[file] = key
            except Exception as error:  # noqa: BLE001 - a picture that cannot be drawn is no reason to stop a run
                self._say(f"{file} could not be drawn: {error}")

    def _all(self, seen: Followed) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """The pictures that there are rows for, each with what draws it."""
        plan, run = self._site.plan, self._site.run
        name = self._site.name if run == RUN else f"{self._site.name}/{run}"
        if seen.rows:
            title, decay = f"{name}: {plan.decision}", float(plan.run.curves.smooth.split()[1])
            yield (
                "ratio.png",
                lambda: draw_ratio(seen.rows, seen.evaluations, title=title, smooth_decay=decay),
            )
        if seen.evaluations:
            yield "development.png", lambda: draw_development(seen.evaluations, title=name)
        if seen.monitors:
            declared = plan.qc.fields if plan.qc is not None else {}
            yield "fields.png", lambda: draw_fields(seen.monitors, title=name, declared=declared)
