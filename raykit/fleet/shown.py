"""What Ray's dashboard shows of a job that raykit is the driver of: its metadata, beside what Ray itself knows."""

from __future__ import annotations

from raykit import __version__
from raykit.fleet.site import Site


def shown_of(site: Site, operation: str, *, launch: str | None = None) -> dict[str, str]:
    """What is done, of which experiment, and by which plan and contract, by their digests."""
    locked = site.locked
    said = {
        "job_name": f"raykit {operation} {site.name}",
        "raykit": __version__,
        "operation": operation,
        "experiment": site.name,
        "decision": site.plan.decision,
        "root": site.store.url,
    }
    if locked is not None:
        said |= {"plan": locked.digest, "contract": locked.contract}
    return said | ({} if launch is None else {"launch": launch})
