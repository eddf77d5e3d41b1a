"""The roles of docs/security.md, and their ACLs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
PAGE = PAGE.partition("| A user with **own** can |")[0]  # what is behind that are no ACLs
ROLES = dict(re.findall(r"^\| ([a-z][^|]*?) +\| ([^|]*`[^|]*) \|$", PAGE, flags=re.MULTILINE))


def acls(role: str, name: str, user: str = "") -> list[str]:
    """Return the ACLs of *role* on the page, for the queue or topic *name*."""
    found: list[str] = re.findall("`([^`]+)`", ROLES[role])
    if "**own**" in ROLES[role]:
        found += acls("own", name)
    return [re.sub(r"\b(orders|prices)\b", name, acl).replace(".ann.", f".{user}.") for acl in found]
