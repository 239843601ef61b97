"""Who may stop a whole search: a signal to its process, a pause, a person who ends it, or a row that went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raykit.errors import RaykitError
from raykit.fleet.search.opening import Opened
from raykit.fleet.signals import Signals
from raykit.pauses import in_force, scopes_of

Say = Callable[[str], None]


class Heed:
    """What this process has heard. What is said once stays said."""

    def __init__(self, opened: Opened, say: Say) -> None:
        self._opened = opened
        self._say = say
        self.signals = Signals(say)
        self.cancelled: str | None = None
        """That a person has ended the search for good, in words."""
        self.wrong: RaykitError | None = None
        """What keeps a row from beginning, beside money and pauses: it ends this process."""
        self._paused: str | None = None
        self._wide: str | None = None
        """A pause of which the runs of rows do not hear by themselves."""

    @property
    def told(self) -> str | None:
        """Why every row stops, where its own run does not hear of it."""
        return self.signals.come or self._wide or (None if self.wrong is None else str(self.wrong))

    @property
    def stopping(self) -> str | None:
        """Why no row begins any more, and those under way leave."""
        return self._paused or self.told

    def look(self) -> None:
        """Hear what people have said since the last look.

        Raises:
            CorruptError: a log of people's acts is damaged.
            StoreUnavailableError: the store did not answer.
        """
        registration = self._opened.registration
        acts = self._opened.people.refresh()
        found = in_force(acts, scopes_of(registration.experiment, "search", registration.contract))
        if acts.cancelled is not None and self.cancelled is None:
            words = acts.cancelled.words
            self.cancelled = self._paused = words
            self._say("; ".join([words, *self._leaving(), "the search is over"]))
        elif found is not None and self._paused is None:
            self._paused = found.words
            self._wide = found.words if found.pause.scope.startswith("contract:") else None
            self._say("; ".join([found.words, *self._leaving()]))

    def _leaving(self) -> Iterator[str]:
        """What rows that are under way do now; nothing where none is."""
        if any(row.status == "begun" for row in self._opened.log.state.rows):
            yield "every row that is at work commits at its next update"
