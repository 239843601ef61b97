"""What Ray's dashboard shows of a job that raykit is the driver of: its metadata, beside what Ray itself knows."""

from __future__ import annotations

from raykit import __version__
from raykit.fleet.site import Site
from raykit.train.inputs import Task


def shown_of(
    site: Site, operation: str, task: Task | None = None, *, launch: str | None = None
) -> dict[str, str]:
    """What is done, of which experiment, and by which plan and contract, by their digests.

    They are what a `task` has locked, or else those of the store; its launch is shown, unless another one is told.
    """
    said = {
        "job_name": f"raykit {operation} {site.name}",
        "raykit": __version__,
        "operation": operation,
        "experiment": site.name,
        "decision": site.plan.decision,
        "root": site.store.url,
    }
    if task is not None:
        said |= {"plan": task.plan, "contract": task.contract}
    elif site.locked is not None:
        said |= {"plan": site.locked.digest, "contract": site.locked.contract}
    if launch is None and task is not None:
        launch = task.launch
    return said if launch is None else {**said, "launch": launch}
