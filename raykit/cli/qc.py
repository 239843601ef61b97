"""`raykit qc`: how far examining the checkpoints is, working the backlog without training, retrying, and reviewing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raykit.cli import output, qclook
from raykit.cli.options import (
    DEFAULT_ROOT,
    By,
    Json,
    Reason,
    Root,
    Scripted,
    Trial,
    at_root,
    is_scripted,
    open_root,
    person_of,
    require_store,
    words,
)
from raykit.cli.progress import display
from raykit.errors import GateError, InvalidInput, NotFoundError

if TYPE_CHECKING:
    from raykit.qc.backlog import Standing
    from raykit.read import Root as ReadRoot
    from raykit.read.qc import QcRead
    from raykit.read.qc_runs import RunsRead

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="An experiment, or experiment/run; of a search, all of its trials."),
]
Update = Annotated[int | None, typer.Option("--update", min=0, help="The checkpoint of this update only.")]


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An experiment; all that have QC by default.")
    ] = None,
    trial: Trial = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Which checkpoints have to be examined, how far each is, what failed and why, and the next command.

    Raises:
        NotFoundError: there is no such experiment, or nothing at the root.
        GateError: its plan has no [qc].
        InvalidInput: a trial of nothing, or of what is no search.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    found = open_root(root)
    require_store(found)
    if name is not None:
        read = _read(found, name, trial)
        if as_json:
            output.print_json(_plain(read))
        else:
            look = qclook.search if read.trials else qclook.whole
            output.print_lines(look(read, output.width(), at_root(root)))
        return
    if trial is not None:
        raise InvalidInput("a trial of which search?", field="NAME", rule="its experiment's name")
    looked = (_read_if_any(found, each) for each in found.experiments())
    reads = [read for read in looked if read is not None]
    if as_json:
        output.print_json([_plain(read) for read in reads])
    else:
        output.print_lines(qclook.all_of_them(reads, at_root(root)))


def run(
    name: Name,
    trial: Trial = None,
    update: Annotated[
        int | None,
        typer.Option("--update", min=0, help="Also this checkpoint, though the cadence does not ask for it."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Workers at once; as the plan's pool by default.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Examine what is still open, without training: with the plan and code that are frozen in the store.

    A checkpoint that somebody has asked for is required from then on, as those of the cadence are. Several of these may
    share one backlog: each question has one receipt, whoever was first.

    Raises:
        NotFoundError: there is no such experiment or trial, or no checkpoint at that update.
        GateError: its plan has no [qc].
        InvalidInput: one update of all trials of a search, or a trial of what is no search.
        RaykitError: whatever refuses the workers, or ended them.
    """
    from raykit.fleet.qc.pictures import draw_of
    from raykit.fleet.qc.run import run_backlog

    found = open_root(root)
    require_store(found)
    read = _read(found, name, trial, update=update)
    if update is not None:
        _ask(found, read.reads[0], update)
    run = None if read.trials else read.reads[0].run
    with display(quiet=as_json) as shown:
        outcome = run_backlog(read.experiment, root, run=run, workers=workers, say=shown.say)
        draw_of(found.store, read.experiment, read.whose, say=shown.say)
    after = _read(found, name, trial)
    if as_json:
        output.print_json({**_plain(after), "exit_code": outcome.exit_code, "why": outcome.why})
    else:
        output.print_lines(qclook.after_run(after, outcome.why, at_root(root)))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def retry(
    name: Name,
    trial: Trial = None,
    update: Update = None,
    reason: Reason = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Let parked checks be tried again. One that has its receipt stays as it is: nothing is examined twice.

    Raises:
        NotFoundError: there is no such experiment, or no such checkpoint is required.
        GateError: its plan has no [qc].
        InvalidInput: nobody said so, or not why; one update of all trials; or a trial of what is no search.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.qc.reviewing import retry as retried
    from raykit.store.people import say

    found = open_root(root)
    require_store(found)
    read, person = _read(found, name, trial, update=update), person_of(by)
    why = words(reason, field="--reason", what="what makes it worth another try?")
    events = retried(read.backlog, update=update, reason=why, person=person, experiment=read.experiment)
    for event in events:
        say(found.store, read.experiment, event, person=person, at=time.time())
    asked = {event.request for event in events}
    again = [each for each in read.standings if each.request.id in asked]
    if as_json:
        retried_ = [_named(read, each) for each in again]
        output.print_json({"experiment": read.experiment, "retried": retried_})
    else:
        output.print_lines(qclook.retried(read, again, update, at_root(root)))


def review(
    name: Name,
    trial: Trial = None,
    update: Update = None,
    upto: Annotated[
        int | None, typer.Option("--upto", min=0, help="All that passed, up to this update.")
    ] = None,
    verdict: Annotated[
        Literal["passed", "failed"],
        typer.Option("--verdict", help="passed | failed; one that failed is only ever reviewed as failed."),
    ] = "passed",
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="What you saw; kept for ever.")
    ] = None,
    by: By = None,
    scripted: Scripted = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Say what you saw in the receipts: all that passed in one act, over the contact sheet; failed ones one by one.

    No decision rests on a checkpoint before that. A review by a script is labelled so, and makes nothing eligible for
    production.

    Raises:
        NotFoundError: there is no such experiment, or no such checkpoint is required.
        GateError: its plan has no [qc]; a failed check is called passed; there is no receipt; or the worker reviews
            itself.
        InvalidInput: nobody said so, or not what they saw; one update of all trials; or a trial of what is no search.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.qc.reviewing import Looked
    from raykit.qc.reviewing import review as reviewed
    from raykit.store.people import say

    found = open_root(root)
    require_store(found)
    read, person = _read(found, name, trial, update=update), person_of(by)
    seen = words(note, field="--note", what="what did you see?")
    looked = Looked(verdict=verdict, note=seen, person=person, scripted=is_scripted(scripted))
    event = reviewed(read.backlog, looked, update=update, upto=upto, experiment=read.experiment)
    if event is not None:
        say(found.store, read.experiment, event, person=person, at=time.time())
    after = _read(found, name, trial)
    if as_json:
        output.print_json(
            {
                "experiment": read.experiment,
                "new": event is not None,
                "reviewed": [] if event is None else list(event.receipts),
                "unreviewed": [_named(after, each) for each in after.backlog.unreviewed],
                "complete": after.complete,
            }
        )
    else:
        output.print_lines(qclook.reviewed(after, event, at_root(root)))


def _ask(found: ReadRoot, read: QcRead, update: int) -> None:
    """Ask for one checkpoint that the cadence leaves out."""
    from raykit.records import Request
    from raykit.store.qc import Examinations

    commits = [view.commit for view in found.run(f"{read.experiment}/{read.run}").commits if view.counts]
    wanted = next((commit for commit in commits if commit.update == update), None)
    if wanted is None:
        raise NotFoundError(
            f"{read.experiment} has no checkpoint at update {update:,}",
            field="--update",
            value=update,
            rule="one of " + ", ".join(f"{commit.update:,}" for commit in commits[:12]),
            remedy=f"raykit checkpoints list {read.experiment}",
        )
    request = Request(
        experiment=read.experiment,
        run=read.run,
        update=update,
        checkpoint=wanted.sha256,
        suite=read.suite.digest,
    )
    Examinations(found.store, read.experiment).ask(request)


# --- reading ------------------------------------------------------------------------------------------------


def _read(found: ReadRoot, name: str, trial: int | None = None, *, update: int | None = None) -> RunsRead:
    """What is meant: one run, or every trial of a search. `update` is one of its checkpoints, which takes one run."""
    read = _read_if_any(found, name, trial)
    if read is None:
        raise GateError(
            f"the plan of {name} has no [qc]: nothing of it has to be examined",
            field="qc",
            rule="a table [qc]: owner, every, roster, fail, on_failure",
            remedy="raykit plan check PLAN, once the plan has one",
        )
    if read.trials and update is not None:
        raise InvalidInput(
            f"update {update:,} of which trial?",
            field="--trial",
            rule="the number of a row that has begun: " + ", ".join(each.run for each in read.reads[:10]),
            remedy=f"raykit qc status {read.experiment}",
        )
    return read


def _read_if_any(found: ReadRoot, name: str, trial: int | None = None) -> RunsRead | None:
    from raykit.read.qc_runs import BegunTrials, read_qc_of
    from raykit.search import run_of

    experiment, _, run = name.partition("/")
    if trial is not None and (run or not found.has_search(experiment)):
        raise InvalidInput(
            f"{name} is no search", field="--trial", value=trial, rule="a search by its experiment's name"
        )
    if trial is None and not run and found.has_search(experiment):
        return read_qc_of(found.store, experiment, BegunTrials, now=time.time())
    experiment, run = found.resolve(name if trial is None else f"{name}/{run_of(trial)}")
    return read_qc_of(found.store, experiment, run, now=time.time())


def _plain(read: RunsRead) -> dict[str, Any]:
    """As JSON values: of one run what it is, of a search what all of them come to and each of them."""
    return read.plain() if read.trials else read.reads[0].plain()


def _named(read: RunsRead, each: Standing) -> int | str:
    return f"{each.request.run}@{each.update}" if read.trials else each.update
