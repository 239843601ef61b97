"""What a job is sent: raykit itself as a wheel, and a working directory with the plan and its code. Bytes that repeat.

Both travel as archives that every node unpacks as they are, the wheel included: what lies in a wheel of pure Python is
what an installer would put beside it. Nothing is installed, so that no node asks a registry for anything.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Final

from raykit.errors import PlanError
from raykit.fleet.package import digest_of_files, package_files
from raykit.plan import Plan
from raykit.train.revision import Git

MAX_WORK_BYTES: Final = 64 * 2**20
"""What a working directory may come to. Data belongs where every node reaches it."""
FOLDER: Final = "job"
GIT: Final = "git.json"

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_TAG: Final = "py3-none-any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One archive, and what is in it."""

    name: str
    """Says what is in it: other content never has it."""
    data: bytes
    files: Mapping[str, int]
    """Sizes by name."""
    digest: str
    """Of its content, however it is packed."""


def wheel() -> Package:
    """The raykit of this process as a wheel. Its build tag is the digest of its content."""
    files = package_files()
    digest = digest_of_files(files)
    version = metadata.version("raykit")
    build = f"1{digest[:16]}"  # a build tag begins with a digit
    info = f"raykit-{version}.dist-info"
    files |= {
        # without requirements: nodes have what raykit needs, and nothing is fetched on their behalf
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: raykit\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: raykit\nRoot-Is-Purelib: true\nBuild: {build}\n"
        f"Tag: {_TAG}\n".encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\nraykit = raykit.cli.main:main\n",
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    return _package(f"raykit-{version}-{build}-{_TAG}", files, digest)


def working_dir(
    plan: Plan, name: str, plan_bytes: bytes, code: Mapping[str, bytes], git: Git
) -> tuple[Package, str]:
    """The plan, its shared file, the recipe's own code and what git knows of that; and where the plan is in it.

    Nothing else is sent. `name` is what the plan's file is called.

    Raises:
        PlanError: it is larger than a working directory may be.
    """
    shared = plan.shared
    # as deep as the shared file's name leads up, and one more: what lies beside the plan is the recipe's code
    ups = 0 if shared is None else shared.name.count("../")
    folder = "/".join([FOLDER] * (1 + ups))
    files = {f"{folder}/{path}": data for path, data in code.items()}
    at = f"{folder}/{name if name not in code else f'submitted-{name}'}"
    files[at] = plan_bytes
    if shared is not None and shared.name not in code:
        files[shared.name.replace("../", "")] = shared.data
    files[GIT] = json.dumps(asdict(git), sort_keys=True).encode()
    size = sum(map(len, files.values()))
    if size > MAX_WORK_BYTES:
        raise PlanError(
            f"the plan and its code come to {size:,} bytes",
            field="recipe",
            value=size,
            rule=f"at most {MAX_WORK_BYTES:,} bytes: data belongs where every node reaches it",
        )
    digest = digest_of_files(files)
    return _package(f"_ray_pkg_{digest[:40]}", files, digest), at


def _package(name: str, files: Mapping[str, bytes], digest: str) -> Package:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in sorted(files.items()):
            entry = zipfile.ZipInfo(path, date_time=_EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    sizes = {path: len(data) for path, data in sorted(files.items())}
    return Package(name=f"{name}.zip", data=buffer.getvalue(), files=sizes, digest=digest)


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    """The RECORD of a wheel: each file with its digest and size, itself without."""
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{own},,", ""]).encode()
