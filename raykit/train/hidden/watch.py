"""Looking for undeclared state while a run trains: at saves, beside training, and never in its way.

What the resume gate has cleared, what the checkpoint's own trees hold, what nothing reads and what was said to be
harmless is no finding. Looking takes at most a hundredth of the time since the attempt began; where it would take more,
a save goes by unlooked at. Whatever goes wrong in it, training goes on.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from raykit.exactness import covers, name_of
from raykit.train.hidden.names import collapsed
from raykit.train.hidden.prints import WHOLE, fingerprint
from raykit.train.hidden.reads import Code
from raykit.train.hidden.walk import Leaf, Owner, Roots, leaves, leaves_of

SHARE = 0.01
"""The share of the time that looking may take."""


class Watch:
    """What has changed since a run began or went on.

    `saved` gives the trees that a checkpoint holds, `since` is when the attempt began, on the same `clock`.
    """

    def __init__(
        self,
        roots: Callable[[], Roots],
        saved: Callable[[], Any],
        *,
        cleared: Collection[str],
        harmless: Collection[str],
        since: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._roots = roots
        self._saved = saved
        self._known = (*cleared, *harmless)
        self._clock = clock
        self._versions: dict[str, tuple[object, str]] = {}
        self._told: set[str] = set()
        self._code: tuple[frozenset[str], Code] | None = None
        self._read: dict[Owner, bool] = {}
        self._since = since
        self._cost_s = self._spent_s = 0.0
        """What a look takes, and what all of them have."""
        self._before: dict[str, str] = {}
        self._saved_before: dict[str, str] = {}
        self._guarded(self._begin)

    def look(self) -> tuple[str, ...]:
        """The names of undeclared state that were not told before; none where there is no time to look."""
        if self._spent_s + self._cost_s > SHARE * (self._clock() - self._since):
            return ()
        found: list[str] = []
        start = self._clock()
        self._guarded(lambda: found.extend(self._found()))
        self._cost_s = self._clock() - start
        self._spent_s += self._cost_s
        return tuple(found)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a run is worth more than what a look could find
            print(f"looking for undeclared state failed: {type(error).__name__}: {error}", file=sys.stderr)

    def _begin(self) -> None:
        self._before = {leaf.path: self._print(leaf) for leaf in leaves(self._roots())}
        self._saved_before = self._of_saved()

    def _found(self) -> tuple[str, ...]:
        roots = self._roots()
        changed: dict[str, tuple[Owner, str]] = {}
        for leaf in leaves(roots):
            now = self._print(leaf)
            if self._before.get(leaf.path) != now and not covers(self._known, leaf.path):
                changed[leaf.path] = leaf.owner, now
        if not changed:
            return ()
        names = [
            name_of(owner.path) for path, owner in self._not_saved(changed) if self._is_read(owner, roots)
        ]
        new = [name for name in collapsed(names) if name not in self._told]
        self._told.update(new)
        return tuple(new)

    def _is_read(self, owner: Owner, roots: Roots) -> bool:
        if owner not in self._read:
            names = frozenset(roots.modules)
            if self._code is None or self._code[0] != names:
                self._code = names, Code.of(roots.modules)
            self._read[owner] = self._code[1].reads(owner) is not None
        return self._read[owner]

    def _not_saved(self, changed: Mapping[str, tuple[Owner, str]]) -> list[tuple[str, Owner]]:
        """Of what has changed, what none of the checkpoint's trees holds.

        What was the same at the beginning and is the same now is the same state. Each leaf of a tree stands for one: of
        two counters that go together, the one that has its name.
        """
        saved = {path: (self._saved_before.get(path), now) for path, now in self._of_saved().items()}
        left = dict(changed)
        for same in (_last_name, lambda path: ""):
            for path, (_, now) in list(left.items()):
                pair = (self._before.get(path), now)
                holds = next(
                    (at for at, its in saved.items() if its == pair and same(at) == same(path)), None
                )
                if holds is not None:
                    del saved[holds], left[path]
        return [(path, owner) for path, (owner, _) in left.items()]

    def _of_saved(self) -> dict[str, str]:
        return {leaf.path: fingerprint(leaf.value) for leaf in leaves_of(self._saved(), "saved")}

    def _print(self, leaf: Leaf) -> str:
        """The digest of a leaf; of a large tensor that nothing has written to since, the one that it had."""
        value = leaf.value
        if not isinstance(value, torch.Tensor) or value.numel() <= WHOLE or value.is_inference():
            return fingerprint(value)
        version = (value.data_ptr(), value._version, value.shape)
        known = self._versions.get(leaf.path)
        if known is None or known[0] != version:
            known = self._versions[leaf.path] = (version, fingerprint(value))
        return known[1]


def _last_name(path: str) -> str:
    """`calls` of `recipe.calls`, and of `saved['calls']`."""
    return re.split(r"[.\[]", path)[-1].strip("]'\"")


__all__ = ["Watch"]
