"""Who is in which split: described from the data, divided by whole groups, written once, compared on resume.

source       describe(): one row of identity per dataset item
split        split(): roles, and the policy that divides a source among them
membership   Membership: a stored split as readers use it, and compare() with the data of today
stored       write() and load(): data/<digest>/{manifest.json, <role>.parquet}
"""

from raykit.data.members.membership import Difference, Membership, Overlap, RoleRecord, SplitManifest, compare
from raykit.data.members.source import Source, describe, families, names_of
from raykit.data.members.split import ROLES, Grouping, Policy, Role, check_role, divide, policy, split
from raykit.data.members.stored import SplitFiles, load, overlaps, split_files, write

__all__ = [
    "ROLES",
    "Difference",
    "Grouping",
    "Membership",
    "Overlap",
    "Policy",
    "Role",
    "RoleRecord",
    "Source",
    "SplitFiles",
    "SplitManifest",
    "check_role",
    "compare",
    "describe",
    "divide",
    "families",
    "load",
    "names_of",
    "overlaps",
    "policy",
    "split",
    "split_files",
    "write",
]
