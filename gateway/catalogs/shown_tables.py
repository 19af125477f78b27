# SPDX-License-Identifier: Apache-2.0
"""
What engines see of the built-in catalog's tables: LoadTableResult, made once for each metadata file, and its tag.

Guarantee: the same metadata file is shown in the same bytes, whether it was just written or read back, and in every
process. So its entity tag follows from what is shown alone, and an engine that holds it is answered without a read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from gateway.catalogs.catalog import ANY, Shown, Snapshots
from gateway.fresh import Pointer
from gateway.metadata.files import MetadataFiles, Written
from gateway.metadata.kept_answers import AnswerKey


class ShownTables:
    """
    The tables of one catalog; each is shown with `config`, which has no credentials. Answers are kept by `files`.
    """

    def __init__(self, files: MetadataFiles, config: Mapping[str, str]) -> None:
        self._files = files
        self._config = orjson.dumps(dict(config))
        self._config_text = self._config.decode()

    async def show(self, pointer: Pointer, snapshots: Snapshots, *, held: Collection[str]) -> Shown:
        """
        Return the table that `pointer` names; the engine has the answers with the entity tags in `held`.

        Raises:
            MetadataFileError: if the metadata file is gone or is not the one that was committed.
        """
        key = self._key(pointer.metadata_location, pointer.metadata_sha256, snapshots)
        kept = self._files.answers.get(key)
        if held:
            etag = key.etag() if kept is None else kept.etag
            if etag in held or ANY in held:
                return Shown(None, etag)
        if kept is None:
            metadata = await self._files.read(pointer.metadata_location, digest=pointer.metadata_sha256)
            chosen = metadata if snapshots is Snapshots.ALL else referenced(metadata)
            kept = self._files.answers.keep(key, self._body(orjson.dumps(chosen), pointer.metadata_location))
        return Shown(kept.body, kept.etag)

    def show_written(self, written: Written) -> Shown:
        """Return the table of a metadata file that was just written: the file's own bytes, kept for the next load."""
        key = self._key(written.location, written.sha256, Snapshots.ALL)
        kept = self._files.answers.keep(key, self._body(written.data, written.location))
        return Shown(kept.body, kept.etag)

    def drop(self, written: Written) -> None:
        """Keep no longer what is kept of a metadata file that its table does not name any more."""
        self._files.drop(written)
        for snapshots in Snapshots:
            self._files.answers.drop(self._key(written.location, written.sha256, snapshots))

    def show_metadata(self, metadata: Mapping[str, Any], location: str | None) -> Shown:
        """Return a table with this metadata; one that was only staged has no `location`."""
        return Shown(self._body(orjson.dumps(metadata), location))

    def _key(self, location: str, sha256: str, snapshots: Snapshots) -> AnswerKey:
        return AnswerKey(location, sha256, snapshots, self._config_text)

    def _body(self, metadata: bytes, location: str | None) -> bytes:
        named = b"" if location is None else b'"metadata-location":%b,' % orjson.dumps(location)
        return b'{%b"metadata":%b,"config":%b}' % (named, metadata, self._config)


def referenced(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the metadata with only those snapshots that branches and tags refer to.
    """
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    snapshots = [snapshot for snapshot in metadata.get("snapshots", []) if snapshot["snapshot-id"] in named]
    return {**metadata, "snapshots": snapshots}
