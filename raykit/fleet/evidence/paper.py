"""A plan whose rows this version cannot open, judged on paper: by the rows that somebody counted."""

from __future__ import annotations

from collections.abc import Mapping

from raykit.errors import PlanError
from raykit.fleet.site import Site, code_files
from raykit.ids import digest_of, sha256
from raykit.plan import Lock, make_lock
from raykit.records import RowsCounted
from raykit.store.people import read_acts
from raykit.train import frozen
from raykit.train.find_recipe import load_recipe
from raykit.train.params import check_params
from raykit.train.searched import check_settings


def paper_lock(site: Site) -> Lock:
    """The lock of a plan whose rows this version cannot open: by the rows that somebody counted.

    Raises:
        PlanError: the recipe or its params are not usable, or rows were not counted.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    recipe = load_recipe(site.plan.recipe, site.folder)
    if site.plan.search is None:
        check_params(recipe, site.plan.run.params)
    else:
        check_settings(recipe, site.plan)
    assert site.plan.data is not None
    counted = counted_rows(site)
    sources = site.plan.data.sources()
    missing = sorted({source for role in sources.values() for source in role} - counted.keys())
    if missing:
        raise PlanError(
            f"nobody has counted the rows of {', '.join(missing)}",
            field="data",
            rule="a count of each, one command for one source: this version opens no source outside the recipe",
            remedy=f'raykit counted PLAN --source "{missing[0]}" --rows N --how "..." --by NAME',
        )
    rows = {role: sum(counted[source].rows for source in names) for role, names in sources.items()}
    code = frozen.pack(code_files(site))
    data = digest_of(
        {"data": site.plan.data.plain(), "rows": rows, "digests": {s: c.digest for s, c in counted.items()}}
    )
    return make_lock(site.plan, code=sha256(code), data=data, rows=rows, base=site.base)


def counted_rows(site: Site) -> Mapping[str, RowsCounted]:
    """By source: how many rows somebody counted last.

    Raises:
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    learned = read_acts(site.store, site.name).learned
    return {event.source: event for event in learned if isinstance(event, RowsCounted)}
