"""Commands that only read a store: `status`, `ls`, `show`, `logs`, `history`, `check`.

None of them writes, starts or needs Ray, and a run that goes on is not disturbed by any.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raykit.cli import checklook, historylook, look, output, runlook, searchlook, setlines
from raykit.cli.checkpoints import Run, scores
from raykit.cli.options import DEFAULT_ROOT, Json, Root, Trial, at_root, open_root, require_store, run_named
from raykit.cli.progress import bar
from raykit.errors import CorruptError, InvalidInput, NotFoundError

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.read.root import AnyTable
    from raykit.records import Commit, Registered
    from raykit.store.base import Listed, ObjectStore

SeriesName = Literal["train", "development", "monitor"]

FOLLOW_S = 1.0
TRIALS = "trials (search)"
NAMED = 8
OVERLAP = 400
"""Characters by which a log that has lost its beginning is found again."""


def _print(lines: Iterator[str]) -> None:
    """Lines, and tables, whose cells are clean already."""
    for line in lines:
        sys.stdout.write("\n".join(map(output.clean, line.split("\n"))) + "\n")


def _end(broken: bool) -> None:
    """What was printed stands; the exit code says whether bytes disagree."""
    if broken:
        raise typer.Exit(CorruptError.exit_code)


# --- what is there ------------------------------------------------------------------------------------------


def status(
    show_all: Annotated[bool, typer.Option("--all", help="The trials of each search, too.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Every run: its state, health, money, how far it is, who is waited for, and the next command; wide pauses.

    A search is one line: `raykit search status NAME` has its trials, and so has --all.

    Raises:
        UnusableRootError: the root is neither a path nor an S3 URL.
        CorruptError: there are no runs, and the registry of candidates is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.people import read_scope

    found = open_root(root)
    views, now, at = found.runs(trials=False), time.time(), at_root(root)
    broken: dict[str, str] = {}
    searches = found.searches(broken=broken.__setitem__)
    wide = read_scope(found.store, "all").pauses
    if as_json:
        pauses = [{**each.pause.plain(), "at": each.at} for each in wide.values()]
        output.print_json(
            {
                "root": found.store.url,
                "runs": [view.plain() for view in views],
                "searches": [read.plain() if show_all else read.brief() for read in searches],
                "broken_searches": broken,
                "pauses": pauses,
            }
        )
    elif not views and not searches and not broken:
        output.print_lines(_no_runs(found, at))
    else:
        others = [searchlook.status_rows(read, trials=show_all) for read in searches]
        others += [[(name, "corrupt", *[look.NONE] * 7, "corrupt")] for name in broken]
        print(look.status_table(views, output.width(), others))
        output.print_lines(line for view in views for line in setlines.lines(view))
        output.print_lines(line for view in views for line in look.wants(view, now, at))
        output.print_lines(line for read in searches for line in searchlook.wants(read, now, at))
        output.print_lines(line for each in broken.items() for line in searchlook.unreadable(*each, at))
        output.print_lines([look.status_foot(views, found.store.url, searches)])
    if not as_json:
        output.print_lines(look.wide_pauses(wide, now, at, views))
    _end(bool(broken) or any(view.state == "corrupt" for view in views))


def _no_runs(found: ReadRoot, at: str) -> Iterator[str]:
    from raykit.store.candidates import read_candidates

    yield f"no runs in {found.store.url}"
    if candidates := read_candidates(found.store):
        names = ", ".join(each.candidate for each in candidates[:NAMED])
        more = f" and {len(candidates) - NAMED} more" if len(candidates) > NAMED else ""
        yield f"  registered candidates: {names}{more}"
        yield f"  -> raykit plan new --from {candidates[0].candidate} --recipe MODULE:CLASS{at}"
    else:
        yield "  -> raykit plan new --recipe MODULE:CLASS"


def ls(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="List the objects of an experiment or a run.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """What is in the store: experiments, runs and registered candidates with their sizes, or every object of one.

    Raises:
        UnsafeNameError: NAME cannot be a name.
        NotFoundError: nothing has that name.
        CorruptError: the registry of candidates is damaged.
        UnusableRootError: the root is neither a path nor an S3 URL.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store import layout
    from raykit.store.candidates import read_candidates

    store = open_root(root).store
    if name is not None:
        experiment, slash, run = name.partition("/")
        prefix = layout.run(experiment, run) if slash else layout.experiment(experiment)
        listed = list(store.list(prefix)) or _candidate_objects(store, name)
        if not listed:
            raise NotFoundError(
                f"there is no {name} in {store.url}", field="NAME", value=name, remedy="raykit ls"
            )
        if as_json:
            output.print_json([item._asdict() for item in listed])
        else:
            print(
                output.table(("SIZE", "KEY"), [(output.size(s), key) for key, s in listed], right=("SIZE",))
            )
        return
    objects: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for key, size_bytes in store.list(layout.experiments()):
        known = layout.known(key)
        if known is not None:
            place = known.parts["experiment"], _place(known.parts)
            objects[place] += 1
            sizes[place] += size_bytes
    candidates = [_listed(store, said) for said in read_candidates(store)]
    if as_json:
        names = ("experiment", "run", "objects", "size_bytes")
        runs = [
            dict(zip(names, (*place, objects[place], sizes[place]), strict=True)) for place in sorted(objects)
        ]
        output.print_json([*runs, *candidates])
        return
    rows = [
        (e, run or "(frozen)", output.count(objects[e, run]), output.size(sizes[e, run]))
        for e, run in sorted(objects)
    ]
    if rows or not candidates:
        print(output.table(("EXPERIMENT", "RUN", "OBJECTS", "SIZE"), rows, right=("OBJECTS", "SIZE")))
    if candidates:
        print("\n" * bool(rows) + _candidate_table(candidates))


def _place(parts: Mapping[str, str]) -> str:
    """What an object of an experiment is listed under: its run, its set, the trials together, or nothing."""
    from raykit.read.view import trial_row

    if "set" in parts:
        return f"{parts['set']} (set)"
    run = parts.get("run", "")
    trial = "search" in parts or (run != "" and trial_row(run) is not None)
    return TRIALS if trial else run


def _candidate_objects(store: ObjectStore, name: str) -> list[Listed]:
    """The objects of a candidate of this name; none if there is no such candidate."""
    from raykit.store.candidates import find_candidate

    said = find_candidate(store, name)
    return [] if said is None else list(store.list(said.key.rpartition("/")[0]))


def _listed(store: ObjectStore, said: Registered) -> dict[str, Any]:
    """One registered candidate with what the store has of it."""
    found = list(store.list(said.key.rpartition("/")[0]))
    return {
        "candidate": said.candidate,
        "role": said.role,
        "origin": said.origin,
        "update": said.update,
        "manifest": said.manifest,
        "experiment": said.experiment,
        "run": None,
        "objects": len(found),
        "size_bytes": sum(each.size_bytes for each in found),
    }


def _candidate_table(candidates: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            each["candidate"],
            each["role"],
            each["origin"],
            output.count(each["update"]) if each["update"] or each["origin"] == "run" else look.NONE,
            output.size(each["size_bytes"]),
            output.short(each["manifest"]),
        )
        for each in candidates
    ]
    headers = ("CANDIDATE", "ROLE", "ORIGIN", "UPDATE", "SIZE", "MANIFEST")
    return output.table(headers, rows, right=("UPDATE", "SIZE"))


def show(run: Run, trial: Trial = None, root: Root = DEFAULT_ROOT, as_json: Json = False) -> None:
    """One run or search, whole, and below it the ledger of its experiment; or a registered candidate.

    What it is made of and by which digests, every launch and attempt with its cost, who approved what, what was
    learned, what was reviewed, and what is not known here.

    Raises:
        NotFoundError: there is no such experiment, run or candidate.
        InvalidInput: the experiment has several runs.
        CorruptError: its log cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.cli.dossier import dossier_lines
    from raykit.read.dossier import dossier_of

    found = open_root(root)
    run = run_named(found, run, trial)
    if "/" not in run and found.has_search(run):
        _show_search(found, run, at_root(root), as_json=as_json)
        return
    try:
        dossier = dossier_of(found, run)
    except NotFoundError:
        if not _show_candidate(found, run, as_json=as_json):
            raise
        return
    view = dossier.view
    if as_json:
        output.print_json({**({} if view is None else view.plain()), "ledger": dossier.plain()})
        return
    if view is not None:
        _print(
            runlook.run_lines(view, _selected(found, view), scores(found, view), time.time(), at_root(root))
        )
        if view.row is not None and found.has_search(view.experiment):
            output.print_lines(searchlook.one_row(found.search(view.experiment), view.row, at_root(root)))
        print()
    _print(dossier_lines(dossier))


def _show_search(found: ReadRoot, name: str, at: str, *, as_json: bool) -> None:
    """A search with its table, and below it the ledger of its experiment."""
    from raykit.cli.dossier import dossier_lines
    from raykit.read.dossier import dossier_of

    read, dossier = found.search(name), dossier_of(found, name)
    if as_json:
        output.print_json({**read.plain(), "ledger": dossier.plain()})
        return
    output.print_lines(searchlook.whole(read, most=searchlook.MOST_ROWS, columns=output.width(), at=at))
    print()
    _print(dossier_lines(dossier))


def _show_candidate(found: ReadRoot, name: str, *, as_json: bool) -> bool:
    """What is known of a registered candidate; False if there is none of this name."""
    from raykit.cli.dossier_weights import weights_lines, weights_record
    from raykit.read.bases import known_candidate

    known = known_candidate(found.store, name)
    if known is None:
        return False
    if as_json:
        output.print_json(weights_record(known))
    else:
        _print(weights_lines(known))
    return True


# --- logs ---------------------------------------------------------------------------------------------------


def logs(
    run: Run,
    rank: Annotated[int, typer.Option("--rank", min=0, help="Whose log.")] = 0,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Of which attempt; the newest by default.")
    ] = None,
    trial: Trial = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run does not.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """The log of one rank of one attempt, as kept in the store; of a search, that of one trial.

    Raises:
        NotFoundError: there is no such run, attempt or rank.
        InvalidInput: the experiment has several runs, or --json with -f.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store import layout

    if as_json and follow:
        raise InvalidInput("a log that is followed is not one JSON document", field="--json", value="-f")
    found = open_root(root)
    run = run_named(found, run, trial)
    experiment, name = found.resolve(run)
    kept = _kept_logs(found, experiment, name)
    number = attempt if attempt is not None else max((a for a, _ in kept), default=0)
    if (number, rank) not in kept:
        if not kept:
            raise NotFoundError(
                f"{experiment}/{name} has no logs yet: a rank writes its own once it starts",
                field="RUN",
                value=run,
                rule="a run whose workers have started",
                remedy=f"raykit watch {experiment}/{name}",
            )
        there = ", ".join(f"attempt {a} rank {r}" for a, r in sorted(kept)[:10])
        raise NotFoundError(
            f"{experiment}/{name} has no log of attempt {number}, rank {rank}",
            field="--attempt, --rank",
            value=f"{number}, {rank}",
            rule=there,
        )
    key = layout.worker_log(experiment, name, number, rank)

    def read() -> str:
        return found.store.get(key).decode("utf-8", "replace")

    if as_json:
        output.print_json({"run": f"{experiment}/{name}", "attempt": number, "rank": rank, "text": read()})
        return
    if follow:
        text = _follow(read, lambda: found.run(f"{experiment}/{name}"))
    else:
        _write(text := read())
    if not text:
        print(f"{experiment}/{name}: rank {rank} has printed nothing in attempt {number}", file=sys.stderr)


def _kept_logs(found: ReadRoot, experiment: str, run: str) -> set[tuple[int, int]]:
    from raykit.store import layout

    known = (layout.known(item.key) for item in found.store.list(layout.run(experiment, run)))
    return {
        (int(item.parts["attempt"]), int(item.parts["rank"]))
        for item in known
        if item is not None and item.kind == "worker-log"
    }


def _follow(read: Callable[[], str], view: Callable[[], RunView]) -> str:
    """Write what a log comes to until its run goes on no more; all of it as it was read last."""
    from raykit.read.view import LIVE

    shown = ""
    while True:
        live = view().state in LIVE  # asked first: what is written before it ends is then still read
        text = read()
        _write(_new_part(shown, text))
        shown = text
        if not live:
            return text
        time.sleep(FOLLOW_S)


def _new_part(shown: str, text: str) -> str:
    """What `text` has beyond `shown`, though its beginning may have been let go meanwhile."""
    if text.startswith(shown):
        return text[len(shown) :]
    at = text.rfind(shown[-OVERLAP:])
    return text if at < 0 else text[at + len(shown[-OVERLAP:]) :]


def _write(text: str) -> None:
    """A log may hold anything; a terminal is not to obey it."""
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text.replace("\r\n", "\n"))
    sys.stdout.write(text)
    sys.stdout.flush()


# --- history ------------------------------------------------------------------------------------------------


def history(
    run: Run,
    series: Annotated[SeriesName, typer.Option("--series", help="Which rows.")] = "train",
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the last rows.")] = None,
    trial: Trial = None,
    root: Root = DEFAULT_ROOT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every row, one JSON document a line.")
    ] = False,
) -> None:
    """Every update of a run: losses, ratios against no skill, coverage. Each row is verified as it is read.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: the experiment has several runs.
        CorruptError: a row is missing, changed, or there twice.
        StoreUnavailableError: the store did not answer.
    """
    found = open_root(root)
    run = run_named(found, run, trial)
    table = found.history(run, series)
    if as_json:
        for row in table.rows() if last is None else table.tail(last):
            sys.stdout.write(row.to_bytes().decode() + "\n")
        return
    if table.last_update == 0 and not table.tail(1):
        print(f"{run} has no {series} rows yet")
        return
    _print_rows(table, last)


def _print_rows(table: AnyTable, last: int | None) -> None:
    rows = list(table.rows()) if last is None else table.tail(last)
    shown = [rows[i] for i in historylook.some(len(rows), historylook.TABLE_ROWS)] if last is None else rows
    match table.series:
        case "train":
            print(historylook.train_table(shown))  # type: ignore[arg-type]
            if last is None:
                _print(historylook.summary(rows, table.superseded))  # type: ignore[arg-type]
        case "development":
            print(historylook.development_table(shown))  # type: ignore[arg-type]
        case "monitor":
            print(historylook.monitor_table(shown))  # type: ignore[arg-type]


# --- check --------------------------------------------------------------------------------------------------


def check(
    where: Annotated[
        str | None, typer.Argument(metavar="[ROOT]", help="The store; --root if left out.")
    ] = None,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="Read every byte, not only records.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """Hold a store against everything it promises. Repairs nothing; exit code 5 if a promise is broken.

    Orphans (what a killed writer left) and unknown files are listed; they break no promise.

    Raises:
        UnusableRootError: the root is neither a path nor an S3 URL.
        NotFoundError: there is no experiment in it.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.check import check as check_store

    with bar("check", quiet=as_json) as tell:
        found = open_root(where or root)
        require_store(found)
        report = check_store(found.store, read_data=read_data, tell=tell)
    if as_json:
        output.print_json(report.plain())
    else:
        _print(checklook.report_lines(report))
    _end(not report.ok)


def _selected(found: ReadRoot, view: RunView) -> Commit | None:
    """The selection, where the history behind it can be read; `show` says of its health what is wrong."""
    try:
        return found.selected(view)
    except CorruptError:
        return None
