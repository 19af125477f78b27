# SPDX-License-Identifier: Apache-2.0
"""
Where a table says that its files are: its location, the properties that are paths, and the files that updates name.

The properties are those of the reference implementation's `TableProperties` that hold a path, and whatever an engine
of its own kind may obey: any absolute path or URI of a storage under a name that ends with `path` or `location`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

METADATA_PATH: Final = "write.metadata.path"
PATH_PROPERTIES: Final = frozenset(
    {
        "write.data.path",
        METADATA_PATH,
        "write.object-storage.path",  # deprecated, and still obeyed
        "write.folder-storage.path",  # deprecated, and still obeyed
    }
)

_NAMED_LIKE_A_PATH: Final = re.compile(r"(path|location)$", re.IGNORECASE)
_ABSOLUTE: Final = re.compile(r"/|[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_OF_THE_WEB: Final = re.compile(r"https?:", re.IGNORECASE)
"""A page about the table, say: no engine writes there."""


def metadata_folder(metadata: Mapping[str, Any]) -> str:
    """
    Return where the table's metadata files go (property `write.metadata.path`, else below its location).
    """
    folder = (metadata.get("properties") or {}).get(METADATA_PATH) or f"{metadata['location'].rstrip('/')}/metadata"
    return str(folder).rstrip("/")


def path_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """
    Return the properties that say where files go; those that are known to do so whatever they hold.
    """
    return {
        name: value
        for name, value in properties.items()
        if name in PATH_PROPERTIES
        or (_NAMED_LIKE_A_PATH.search(name) and _ABSOLUTE.match(value.strip()) and not _OF_THE_WEB.match(value.strip()))
    }


def changed_paths(after: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """
    Yield field and value of each location or path that a table has and did not have before.
    """
    known = before or {}
    if after["location"] != known.get("location"):
        yield "location", after["location"]
    earlier = known.get("properties") or {}
    for name, value in sorted(path_properties(after.get("properties") or {}).items()):
        if earlier.get(name) != value:
            yield f"properties.{name}", value


def stored_files(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """
    Yield field and path of each file that table metadata names: manifest lists, manifests and statistics.
    """
    for position, snapshot in enumerate(metadata.get("snapshots") or ()):
        field = f"snapshots[{position}]"
        if "manifest-list" in snapshot:
            yield f"{field}.manifest-list", str(snapshot["manifest-list"])
        manifests = snapshot.get("manifests")  # of version 1
        for number, manifest in enumerate(manifests if isinstance(manifests, list) else ()):
            yield f"{field}.manifests[{number}]", str(manifest)
    for name in ("statistics", "partition-statistics"):
        for position, one in enumerate(metadata.get(name) or ()):
            yield f"{name}[{position}].statistics-path", str(one.get("statistics-path"))


def named_files(updates: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """
    Yield field and path of each file that the updates of a commit name: manifest lists and statistics.
    """
    for position, update in enumerate(updates):
        field = f"updates[{position}]"
        match update["action"]:
            case "add-snapshot":
                yield f"{field}.snapshot.manifest-list", update["snapshot"]["manifest-list"]
            case "set-statistics":
                yield f"{field}.statistics.statistics-path", update["statistics"]["statistics-path"]
            case "set-partition-statistics":
                yield f"{field}.partition-statistics.statistics-path", update["partition-statistics"]["statistics-path"]
            case _:
                pass  # names no file


def files_since(base: str | None, metadata: Mapping[str, Any]) -> list[str] | None:
    """
    Return the metadata files between `base` and the current one; None if the table's metadata log does not say.
    """
    files = [str(each["metadata-file"]) for each in metadata.get("metadata-log") or []]
    return None if base is None or base not in files else files[len(files) - files[::-1].index(base) :]
