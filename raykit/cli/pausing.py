"""`raykit pause`: ask, and follow the runs concerned to their boundaries, from the store alone."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import money as show_money
from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, By, Json, Reason, Root, at_root, open_root, person_of, words
from raykit.errors import DeadlineError, NotFoundError

if TYPE_CHECKING:
    from raykit.pauses import InForce
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.read.money import HeldMoney, Ledgers
    from raykit.read.searchview import SearchRead
    from raykit.store.log import RunLog

LOOK_EVERY_S = 0.25
SETTLE_S = 30.0
"""How long a launch that has let go is waited for until it has settled."""
HELD_S = 2.0
"""How long after that it may take to say that machines stay billed."""
SHORTEST_DIGEST = 8
"""Of a contract's digest, so much is enough if it names only one."""


def pause(
    scope: Annotated[
        str, typer.Argument(metavar="[SCOPE]", help="all, NAME, role:train, contract:DIGEST.")
    ] = "all",
    reason: Reason = None,
    by: By = None,
    premise: Annotated[
        bool,
        typer.Option(
            "--premise",
            help="What the plan was approved on is not so (a premise, a cost, a trade-off): a person decides anew.",
        ),
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Ask, and do not follow.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.0, help="How long to follow, in seconds.")
    ] = 120.0,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Commit at the next update, release the machines and end, to go on later (others call it suspend).

    Works from wherever the store is seen, with or without Ray, and holds until it is resumed: through restarts of
    everything. To say it twice changes nothing. Ctrl-C ends the following, not the pause.

    Raises:
        InvalidInput: no reason, or SCOPE is none.
        NotFoundError: nothing is there that SCOPE names.
        DeadlineError: a run has not reached its boundary in time. The pause holds.
        CorruptError: a log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.store import people

    person = person_of(by, needed=False)
    found = open_root(root)
    whom = known_scope(found, scope)
    why = words(reason, field="--reason", what="a pause needs a reason: whoever finds it will ask")
    # Looked at before: a run may reach its boundary before anyone can look after it was asked.
    follow = _Following(found, whom, quiet=as_json)
    follow.look_around()
    said = people.pause(
        found.store,
        whom,
        reason=why,
        person=person,
        cause="premise" if premise else "person",
        at=time.time(),
    )
    assert said.holds is not None
    follow.begin(said.holds, new=said.new)
    if not no_wait:
        follow.until(time.monotonic() + timeout_s)
    held = _held(found, follow)
    if as_json:
        output.print_json(_pause_record(follow, said.new, held))
    else:
        output.print_lines(_pause_end(follow, held, root, waited=not no_wait))
    if not no_wait and follow.open:
        raise typer.Exit(DeadlineError.exit_code)


def known_scope(found: ReadRoot, text: str) -> str:
    """The scope that `text` means, if it names something.

    Raises:
        InvalidInput: it is no scope.
        UnsafeNameError: its name cannot be one.
        NotFoundError: there is no such experiment or contract.
    """
    from raykit.ids import safe_name
    from raykit.pauses import scope_of

    kind, _, rest = text.partition(":")
    if kind == "contract":
        return scope_of(f"contract:{_contract(found, rest)}")
    scope = scope_of(text)
    kind, _, rest = scope.partition(":")
    if kind == "experiment":
        known = found.experiments()
        if safe_name(rest) not in known:
            close = difflib.get_close_matches(rest, known, n=1)
            raise NotFoundError(
                f"there is no experiment {rest} in {found.store.url}",
                field="SCOPE",
                value=rest,
                rule=f"did you mean {close[0]}?" if close else ", ".join(known[:10]) or None,
                remedy="raykit ls",
            )
    return scope


def _contract(found: ReadRoot, text: str) -> str:
    """The one contract whose digest begins like this."""
    known: dict[str, str] = {read.registration.contract: read.experiment for read in found.searches()}
    for view in found.runs(trials=False):
        if view.lock is not None:
            known[view.lock.contract] = view.experiment
        known |= {read.made.digest: read.id for read in view.sets if read.made is not None}
    fits = [digest for digest in known if digest.startswith(text)]
    if len(fits) == 1 and len(text) >= SHORTEST_DIGEST:
        return fits[0]
    names = ", ".join(f"{output.short(digest)} ({name})" for digest, name in list(known.items())[:10])
    raise NotFoundError(
        f"{text} is not the digest of one contract in {found.store.url}",
        field="SCOPE",
        value=text,
        rule=f"at least its first {SHORTEST_DIGEST} characters: {names}" if names else "no run has one yet",
        remedy="raykit ls",
    )


@dataclass(slots=True)
class _Stopping:
    """One run on its way to its boundary, followed in its log alone."""

    view: RunView
    log: RunLog
    said: int = 0
    """How many of the log's entries have been told of."""
    lost: int | None = None
    """Updates that were trained after the boundary, once it is reached."""
    released_at: float | None = None
    """When its launch let go, by this process's own clock; it then ends its Ray and settles."""
    overdue: bool = False


@dataclass(slots=True)
class _Following:
    """The runs that a pause concerns, until each is paused with its boundary."""

    found: ReadRoot
    scope: str
    quiet: bool
    holds: InForce | None = None
    names: list[str] = field(default_factory=list)
    """The experiments that are concerned, at work or not."""
    open: list[_Stopping] = field(default_factory=list)
    done: list[_Stopping] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    """Who else is concerned and at work: on synthetic sets, and on QC. They are not waited for."""
    ledgers: Ledgers = field(init=False)

    def __post_init__(self) -> None:
        from raykit.read.money import Ledgers

        self.ledgers = Ledgers(self.found.store)

    def say(self, at: float, name: str, text: str) -> None:
        if not self.quiet:
            output.print_lines([f"  {output.clock(at)}  {name}  {text}"])

    def look_around(self) -> None:
        """Which runs are concerned, and which of them are at work."""
        from raykit.store.log import RunLog

        runs, searches = self.found.runs(trials=False), self.found.searches()
        self.workers = [text for view in runs for text in _at_work(view, self.scope)]
        self.workers += [text for read in searches for text in _driven(read, self.scope)]
        trials = [
            self.found.run(f"{read.experiment}/{row.run}")
            for read in searches
            for row in read.at_work
            if row.attempts
        ]
        views = [view for view in (*runs, *trials) if _concerns(view, self.scope)]
        concerned = {read.experiment for read in searches if _concerns_search(read, self.scope)}
        self.names = sorted({view.experiment for view in views} | concerned)
        for view in views:
            if view.holder is not None:
                log = RunLog(self.found.store, view.experiment, view.run, by="reader")
                self.open.append(_Stopping(view=view, log=log, said=len(log.refresh())))

    def begin(self, holds: InForce, *, new: bool) -> None:
        """Who asked and when, and what is at work."""
        self.holds, pause = holds, holds.pause
        asked = "requested" if new else "was requested already"
        self.say(
            holds.at, self.scope.removeprefix("experiment:"), f"{asked} by {pause.person}: {pause.reason}"
        )
        for run in self.open:
            view = run.view
            workers = f"{view.workers} of {view.workers} workers" if view.workers else "its launch"
            update = output.count(view.update)
            self.say(time.time(), run_name(view), f"{workers} at update {update}, to commit at the next")
        for text in self.workers:
            if not self.quiet:
                output.print_lines([f"  {text}"])

    @property
    def asked_at(self) -> float:
        """When the pause that holds was asked for."""
        assert self.holds is not None
        return self.holds.at

    def until(self, deadline: float) -> None:
        """Tell what happens until every run is paused, or until `deadline`."""
        while self.open:
            for run in list(self.open):
                if (run.lost is not None or not self._look(run)) and self._settled(run):
                    self._end(run)
            if not self.open:
                return
            if time.monotonic() >= deadline:
                for run in [run for run in self.open if run.lost is not None]:
                    self._end(run)
                return
            time.sleep(LOOK_EVERY_S)

    def _end(self, run: _Stopping) -> None:
        self.open.remove(run)
        self.done.append(run)

    def _settled(self, run: _Stopping) -> bool:
        """Has a launch that let go said what it has cost? Of one that was killed nobody waits for that."""
        ledger = self.ledgers.of(run.view.experiment)
        if ledger is None or run.released_at is None:
            return True
        prefix = f"{run.view.launch}-"
        leases = [lease for name, lease in ledger.book.leases.items() if name.startswith(prefix)]
        if any(lease.open for lease in leases):
            return time.monotonic() - run.released_at > SETTLE_S
        if charged := sum(lease.charged for lease in leases):
            self.say(
                time.time(), run_name(run.view), f"settled at {output.amount(charged, ledger.book.unit)}"
            )
        return True

    def _look(self, run: _Stopping) -> bool:
        """Tell what is new of one run; whether it is still at work."""
        from raykit.read.view import LIVE, patience_s, state_of
        from raykit.store.place import alive

        now = time.time()
        run.log.refresh()
        state = run.log.state
        owner = state.launched if state.released is None else None
        live = state_of(state, now=now, alive=alive(owner.place) if owner else None) in LIVE
        for entry in run.log.entries[run.said :]:
            for event in entry.events:
                if text := _boundary(event):
                    self.say(entry.at, run_name(run.view), text)
        run.said = len(run.log.entries)
        if not live:
            committed = state.committed or 0
            run.lost = max(0, state.recorded() - committed)
            run.released_at = None if state.released is None else time.monotonic()
            gone = "its launch is gone" if state.released is None else "released"
            lost = f"lost: {output.count(run.lost)} update{'' if run.lost == 1 else 's'}"
            self.say(now, run_name(run.view), f"{gone}, at update {output.count(committed)}   {lost}")
        elif not run.overdue and now - self.asked_at > patience_s(run.view):
            run.overdue = True
            self.say(
                now, run_name(run.view), f"overdue: no boundary for {output.duration(now - self.asked_at)}"
            )
        return live


def run_name(view: RunView) -> str:
    """`experiment` for its main run, `experiment/run` for others."""
    return view.experiment if view.run == "main" else view.id


def _concerns(view: RunView, scope: str) -> bool:
    from raykit.pauses import scopes_of

    if view.state in ("completed", "corrupt"):
        return False
    return scope in scopes_of(view.experiment, view.role, view.lock.contract if view.lock else None)


def _concerns_search(read: SearchRead, scope: str) -> bool:
    from raykit.pauses import scopes_of

    return scope in scopes_of(read.experiment, "search", read.registration.contract)


def _driven(read: SearchRead, scope: str) -> Iterator[str]:
    """The process of a search that the pause concerns. Its rows are followed by themselves."""
    if read.place is not None and _concerns_search(read, scope):
        left = sum(not row.ended and row.begun_at is None for row in read.rows)
        rows = f"{output.count(left)} row{'' if left == 1 else 's'}"
        yield f"{read.experiment}: its search has {rows} to begin, and begins no more"


def _at_work(view: RunView, scope: str) -> Iterator[str]:
    """Workers beside the training of a run that the pause concerns, and how they come to their end."""
    from raykit.pauses import scopes_of

    for read in view.sets:
        digest = None if read.made is None else read.made.digest
        if scope not in scopes_of(read.experiment, "generate", digest):
            continue
        in_hand = 0 if read.made is None else read.made.units["claimed"]
        if in_hand:
            units = f"{output.count(in_hand)} unit{'' if in_hand == 1 else 's'}"
            yield f"{read.id}: {units} in hand; workers finish what they have, publish it, and take no more"
        elif read.state in ("running", "canary"):
            yield f"{read.id}: {read.words}; it takes no more"
    if view.qc is not None and scope in scopes_of(view.experiment, "qc", view.qc.suite.digest):
        claimed = view.qc.counts()["claimed"]
        if claimed:
            checks = f"{output.count(claimed)} check{'' if claimed == 1 else 's'}"
            yield f"{run_name(view)}: {checks} of QC in hand; workers finish what they have, and take no more"


def _boundary(event: object) -> str | None:
    """What an event of a run that was asked to pause means to whoever waits for it."""
    from raykit.records import Commit, StopRequested

    match event:
        case StopRequested():
            return "draining: every worker stops at the same update"
        case Commit(reason="stop"):
            size, took = output.size(event.size_bytes), output.duration(event.save_s)
            return f"committed update {output.count(event.update)} ({size}, {took})"
    return None


def _held(found: ReadRoot, follow: _Following) -> list[tuple[str, HeldMoney]]:
    """Machines that are billed though nobody works on them; waited for a moment where there may be some."""
    may_hold = {run.view.experiment for run in follow.done if _billed_by_node(run.view)}
    deadline = time.monotonic() + HELD_S
    while True:
        held = [(name, machines) for name in follow.names for machines in _held_of(found, name)]
        if may_hold <= {name for name, _ in held} or time.monotonic() >= deadline:
            return held
        time.sleep(LOOK_EVERY_S)


def _held_of(found: ReadRoot, name: str) -> Sequence[HeldMoney]:
    from raykit.read.money import money_of

    money = money_of(found.store, name, time.time())
    return () if money is None else money.held


def _billed_by_node(view: RunView) -> bool:
    """Do the machines of its pool cost whether or not anyone works on them, with nothing to give them back?"""
    pools = view.lock.settings.get("pools") if view.lock is not None else None
    pool = pools.get("train") if isinstance(pools, Mapping) else None
    price = pool.get("usd_per_hour") if isinstance(pool, Mapping) else None
    if not isinstance(pool, Mapping) or not isinstance(price, Mapping) or pool.get("release"):
        return False
    return price.get("billed") == "node" and bool(price.get("rate"))


def _pause_end(
    follow: _Following, held: Sequence[tuple[str, HeldMoney]], root: str, *, waited: bool
) -> Iterator[str]:
    from raykit.pauses import way_on

    at = at_root(root)
    for name, machines in held:
        yield from (f"  {line.lstrip()}" for line in show_money.held_lines(machines, name, at))
    for run in follow.open if waited else ():
        name = run_name(run.view)
        since = output.duration(time.time() - follow.asked_at)
        yield f"  overdue: {name} has not reached its boundary {since} after the request; the pause holds"
        yield f"  -> raykit logs {name}{at}      then      raykit status{at}"
    target = follow.scope.removeprefix("experiment:")
    if follow.open:
        word = "asked" if not waited else "still waiting"
        yield f"  {word}: {', '.join(run_name(run.view) for run in follow.open)}.  See: raykit status{at}"
    elif follow.workers:
        yield f"  nothing more of it starts; what is in hand is finished.  See: raykit status{at}"
    elif not follow.done:
        yield "  nothing of it is running; nothing of it starts."
    on = f"raykit resume {target}" if follow.holds is None else way_on(follow.holds)
    yield f"  {'paused. ' if not follow.open else ''}Continue: {on}{at}"


def _pause_record(follow: _Following, new: bool, held: Sequence[tuple[str, HeldMoney]]) -> dict[str, Any]:
    assert follow.holds is not None
    return {
        **follow.holds.pause.plain(),
        "at": follow.asked_at,
        "new": new,
        "at_work": follow.workers,
        "paused": not follow.open,
        "runs": [
            {"id": run.view.id, "paused": done, "lost_updates": run.lost, "overdue": run.overdue}
            for done, runs in ((True, follow.done), (False, follow.open))
            for run in runs
        ],
        "held": [
            {"experiment": name, "pool": machines.pool, "an_hour": machines.an_hour}
            for name, machines in held
        ],
    }
