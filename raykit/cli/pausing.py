"""`raykit pause`: ask, and follow the runs concerned to their boundaries, from the store alone."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import money as show_money
from raykit.cli import output
from raykit.cli.following import LOOK_EVERY_S, Following, run_name
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Reason,
    Root,
    at_root,
    open_root,
    person_of,
    require_whole,
    words,
)
from raykit.cli.setlines import PERSON_ENDS
from raykit.errors import DeadlineError, NotFoundError

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.read.money import HeldMoney
    from raykit.read.setview import SetRead

HELD_S = 2.0
"""How long after that it may take to say that machines stay billed."""
SHORTEST_DIGEST = 8
"""Of a contract's digest, so much is enough if it names only one."""


def pause(
    scope: Annotated[
        str,
        typer.Argument(metavar="[SCOPE]", help="all, NAME, role:train|qc|generate|search, contract:DIGEST."),
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

    QC and generation finish or drop the unit in hand; the trials of a search commit, and it begins no more of them.

    Works from wherever the store is seen, with or without Ray, and holds until it is resumed: through restarts of
    everything. To say it twice changes nothing. Ctrl-C ends the following, not the pause.

    Raises:
        InvalidInput: no reason, or SCOPE is none.
        NotFoundError: nothing is there that SCOPE names.
        CancelledError: SCOPE is an experiment that was ended for good.
        DeadlineError: a run, or a worker with something in hand, has not reached its boundary in time. The pause holds.
        CorruptError: a log is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    from raykit.store import people

    person = person_of(by, needed=False)
    found = open_root(root)
    whom = known_scope(found, scope, act="pause")
    _require_going(found, whom)
    why = words(reason, field="--reason", what="a pause needs a reason: whoever finds it will ask")
    # Looked at before: a run may reach its boundary before anyone can look after it was asked.
    follow = Following(found, whom, quiet=as_json)
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
        sets = _paused_sets(found, follow.scope)
        output.print_lines(_pause_end(follow, held, sets, root, waited=not no_wait))
    if not no_wait and follow.waits():
        raise typer.Exit(DeadlineError.exit_code)


def _require_going(found: ReadRoot, scope: str) -> None:
    """Refuse to pause an experiment that was cancelled: it would be said to go on later."""
    from raykit.pauses import require_running
    from raykit.store.people import read_acts

    kind, _, name = scope.partition(":")
    if kind == "experiment":
        require_running(read_acts(found.store, name), name, ())


def known_scope(found: ReadRoot, text: str, *, act: str) -> str:
    """The scope that `text` means, if it names something; `act` is what is to be done with it.

    Raises:
        InvalidInput: it is no scope, or one run.
        UnsafeNameError: its name cannot be one.
        NotFoundError: there is no such experiment or contract.
    """
    from raykit.ids import safe_name
    from raykit.pauses import scope_of

    require_whole(text, act, field="SCOPE")
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
        if view.qc is not None:
            known[view.qc.suite.digest] = f"QC of {view.experiment}"
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


def _paused_sets(found: ReadRoot, scope: str) -> list[SetRead]:
    """The synthetic sets of trained runs that wait only for the end of this pause; a wider one ends run by run."""
    if not scope.startswith(PERSON_ENDS):
        return []
    trained = (view for view in found.runs(trials=False) if view.state == "completed")
    reads = (read for view in trained for read in view.sets if read.then is not None)
    return [read for read in reads if read.pause is not None and read.pause.pause.scope == scope]


def _held(found: ReadRoot, follow: Following) -> list[tuple[str, HeldMoney]]:
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
    follow: Following,
    held: Sequence[tuple[str, HeldMoney]],
    sets: Sequence[SetRead],
    root: str,
    *,
    waited: bool,
) -> Iterator[str]:
    from raykit.pauses import way_on

    at = at_root(root)
    for name, machines in held:
        yield from (f"  {line.lstrip()}" for line in show_money.held_lines(machines, name, at))
    since = output.duration(time.time() - follow.asked_at)
    late = [each for each in follow.workers if each.boundary is None]
    if waited:
        for run in follow.open:
            name = run_name(run.view)
            yield f"  overdue: {name} has not reached its boundary {since} after the request; the pause holds"
            yield f"  -> raykit logs {name}{at}      then      raykit status{at}"
        for each in late:
            who = f"{each.working.of}: {each.working.who}"
            yield f"  overdue: {who} has reached no boundary {since} after the request; the pause holds"
    names = [*(run_name(run.view) for run in follow.open), *(each.working.of for each in late)]
    if names:
        word = "asked" if not waited else "still waiting"
        yield f"  {word}: {', '.join(dict.fromkeys(names))}.  See: raykit status{at}"
    elif not follow.done and not follow.workers:
        yield "  nothing of it is running; nothing of it starts."
    target = follow.scope.removeprefix("experiment:")
    on = f"raykit resume {target}" if follow.holds is None else way_on(follow.holds)
    then = dict.fromkeys(f"   then   {read.then}{at}" for read in sets)
    yield f"  {'' if follow.waits() else 'paused. '}Continue: {on}{at}{''.join(then)}"


def _pause_record(follow: Following, new: bool, held: Sequence[tuple[str, HeldMoney]]) -> dict[str, Any]:
    assert follow.holds is not None
    return {
        **follow.holds.pause.plain(),
        "at": follow.asked_at,
        "new": new,
        "paused": not follow.waits(),
        "runs": [
            {
                "id": run.view.id,
                "role": run.view.role,
                "state": run.state,
                "paused": done,
                "lost_updates": run.lost,
                "after_s": run.after_s,
                "overdue": run.overdue,
            }
            for done, runs in ((True, follow.done), (False, follow.open))
            for run in runs
        ],
        "workers": [
            {
                "of": each.working.of,
                "role": each.working.role,
                "worker": each.working.who,
                "state": each.state,
                "boundary": each.boundary,
                "after_s": each.after_s,
            }
            for each in follow.workers
        ],
        "held": [
            {"experiment": name, "pool": machines.pool, "an_hour": machines.an_hour}
            for name, machines in held
        ],
    }
