# SPDX-License-Identifier: Apache-2.0
"""
The library: policies that are ready to be copied, changed where they name something, and applied.

They are files of this package, in the form of every policy file (`policy_files.py`). None is in force by itself.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from gateway.errors import BadRequestError
from gateway.policy.nearest import nearest
from gateway.policy.policy_files import PolicyFile, parse_policy

_FOLDER: Final = files("gateway.policy") / "library"


@cache
def library() -> tuple[PolicyFile, ...]:
    """Return the policies of the library, by id."""
    names = sorted(one.name for one in _FOLDER.iterdir() if one.name.endswith(".yaml"))
    return tuple(parse_policy((_FOLDER / name).read_bytes(), name=name) for name in names)


def library_text(policy_id: str) -> str:
    """
    Return the file of one of them, with the comments for whoever adapts it.

    Raises:
        BadRequestError: if there is none of that id; names the nearest.
    """
    known = [policy.id for policy in library()]
    if policy_id not in known:
        raise BadRequestError(
            f"expected the id of a policy of the library, found {policy_id!r:.80}; the nearest is "
            f"{nearest(policy_id[:80], known)}"
        )
    return (_FOLDER / f"{policy_id}.yaml").read_text(encoding="utf-8")
