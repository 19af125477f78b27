# SPDX-License-Identifier: Apache-2.0
"""
Paths of tables, views and namespaces, and patterns of them, as access rules and scopes have them. Pure.

A path has levels and name joined by dots. `sales.*` is everything directly in the namespace `sales`; `sales.**` is that
namespace, and everything in it on any level; anything else is one path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DOT_WITHIN: Final = "\x1d"
"""What stands in a path for a dot within a name."""
ONE_LEVEL: Final = ".*"
ALL_LEVELS: Final = ".**"


def joined_path(names: Iterable[str]) -> str:
    """
    Return levels and name joined by dots, each dot or NUL within one as U+001D (Nessie's `ContentKey.toPathString`).

    Unambiguous for names without that character, which the gateway refuses as it does all control characters.
    """
    return ".".join(name.replace(".", DOT_WITHIN).replace("\0", DOT_WITHIN) for name in names)


def pattern_covers(pattern: str, path: str, *, is_namespace: bool = False) -> bool:
    """
    Return whether a pattern names `path`, which is that of a namespace or of something in one.
    """
    if pattern.endswith(ALL_LEVELS):
        within = pattern[: -len(ALL_LEVELS)]
        return path.startswith(f"{within}.") or (is_namespace and path == within)
    if pattern.endswith(ONE_LEVEL):
        within = pattern[: -len(ONE_LEVEL) + 1]
        return path.startswith(within) and "." not in path[len(within) :]
    return path == pattern
