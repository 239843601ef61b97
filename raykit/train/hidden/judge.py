"""What a resume loses of the graph: two undisturbed runs and one that was stopped, held against each other.

differs between undisturbed twins      a timer, an address: nothing is said of it here
equal after a stop and a resume        saved, made again or worked out anew
the same rows, asked again, bring it   a cache: memoised rows, masks, positions, the longest row so far
nothing reads it                       a counter that is printed
said to be harmless                    in the plan, or by a person
anything else                          a finding
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from raykit.exactness import covers, name_of
from raykit.train.hidden.names import collapsed
from raykit.train.hidden.prints import fingerprint, told
from raykit.train.hidden.reads import Code, Place
from raykit.train.hidden.undo import settings
from raykit.train.hidden.walk import Owner, Roots, leaves


@dataclass(frozen=True, slots=True)
class Seen:
    """One leaf as it was at some moment."""

    digest: str
    owner: Owner
    words: str


Snapshot = Mapping[str, Seen]


def snapshot(roots: Roots) -> Snapshot:
    """The whole graph as it is now, and what of this process a recipe can set."""
    found = {leaf.path: Seen(fingerprint(leaf.value), leaf.owner, told(leaf.value)) for leaf in leaves(roots)}
    for name, value in settings().items():
        found[name] = Seen(fingerprint(value), Owner(name), told(value))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The graph in one run of the resume gate."""

    start: Snapshot
    """Right after the run was built, and restored."""
    stepped: Snapshot
    """After the update that a stopped run goes on with."""
    end: Snapshot
    """After the last update and an evaluation."""
    again: Snapshot
    """After the rows that the stopped run has not seen were asked for once more, and nothing was stepped."""
    answer: str
    """The digest of what those rows gave: the rows, and their loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """State that a resume loses, and that something reads."""

    path: str
    name: str
    was: str
    now: str
    place: Place

    @property
    def words(self) -> str:
        """`recipe.calls is 3, and 2 after a stop and a resume (read in recipe.py, line 41)`."""
        read = f" (read in {self.place})" if self.place.file else ""
        if self.was == self.now:
            return f"{self.path}, {self.was}, is another after a stop and a resume{read}"
        return f"{self.path} is {self.was}, and {self.now} after a stop and a resume{read}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came out."""

    findings: tuple[Finding, ...]
    cleared: tuple[str, ...]
    """The names of what training changes, and what nobody has to save."""

    @property
    def names(self) -> tuple[str, ...]:
        return collapsed(finding.name for finding in self.findings)


def judge(
    undisturbed: Moments, twin: Moments, resumed: Moments, code: Code, harmless: Collection[str] = ()
) -> Judged:
    """Compare the three runs."""
    found: dict[str, Finding] = {}
    lost: set[str] = set()
    asked_alike = undisturbed.answer == resumed.answer
    for path, was, now in _differences(undisturbed, twin, resumed):
        seen = was or now
        assert seen is not None
        if seen.owner.path in lost or covers(harmless, path):
            continue
        if asked_alike and _comes_again(path, undisturbed, resumed):
            continue
        place = code.reads(seen.owner)
        if place is not None:
            lost.add(seen.owner.path)
            found[path] = Finding(
                path=path, name=name_of(seen.owner.path), was=_words(was), now=_words(now), place=place
            )
    changed = {name_of(owner.path) for owner in _changed(undisturbed)}
    cleared = changed - {name_of(path) for path in lost}
    return Judged(findings=tuple(found.values()), cleared=tuple(sorted(cleared)))


def _differences(
    undisturbed: Moments, twin: Moments, resumed: Moments
) -> Iterator[tuple[str, Seen | None, Seen | None]]:
    """What is not equal after the stop, and would have been without one."""
    for one, same, other in (
        (undisturbed.end, twin.end, resumed.end),
        (undisturbed.stepped, twin.stepped, resumed.stepped),
    ):
        for path in sorted(one.keys() | other.keys()):
            was, now = one.get(path), other.get(path)
            if _digest(was) != _digest(now) and _digest(was) == _digest(same.get(path)):
                yield path, was, now


def _comes_again(path: str, undisturbed: Moments, resumed: Moments) -> bool:
    """Whether those rows bring a value back where it is missing, and change nothing where it is not."""
    whole = _digest(undisturbed.again.get(path))
    return whole == _digest(undisturbed.end.get(path)) == _digest(resumed.again.get(path))


def _changed(run: Moments) -> Iterator[Owner]:
    for later in (run.stepped, run.end):
        for path in run.start.keys() | later.keys():
            was, now = run.start.get(path), later.get(path)
            if _digest(was) != _digest(now):
                seen = now or was
                assert seen is not None
                yield seen.owner


def _digest(seen: Seen | None) -> str | None:
    return None if seen is None else seen.digest


def _words(seen: Seen | None) -> str:
    return "not there" if seen is None else seen.words


__all__ = ["Finding", "Judged", "Moments", "Snapshot", "judge", "snapshot"]
