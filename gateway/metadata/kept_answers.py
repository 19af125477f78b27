# SPDX-License-Identifier: Apache-2.0
"""
Tables as engines were shown them: the bytes of the answer, kept next to the metadata files they were made of.

What an answer is made of never changes (a metadata file is immutable, and its digest is in the key), so a kept answer
never becomes wrong. An answer made of a newer metadata file of the same table replaces it. To make room, the least
recently used answers are dropped.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.metadata.versions import is_older, series_of

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024

_TAG_SIZE_BYTES: Final = 16
_FORM: Final = "LoadTableResult 1"
"""Changes when the same metadata is shown in other bytes: an entity tag stands for bytes (RFC 9110, section 8.8.1)."""


class AnswerKey(NamedTuple):
    """What an answer is made of: the committed metadata file, which of its snapshots, and the table's configuration."""

    metadata_location: str
    metadata_sha256: str
    snapshots: str
    config: str

    def place(self) -> tuple[str, str, str]:
        """Return what the answers of one table have in common that replace each other."""
        return series_of(self.metadata_location), self.snapshots, self.config

    def etag(self) -> str:
        """Return the answer's entity tag: the same in every process, and different for every other answer."""
        digest = hashlib.blake2b("\x00".join((_FORM, *self)).encode(), digest_size=_TAG_SIZE_BYTES)
        return f'"{digest.hexdigest()}"'


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer's entity tag and its bytes."""

    etag: str
    body: bytes


class KeptAnswers:
    """
    Keeps answers up to `kept_bytes_max` in all. Event loop only.
    """

    def __init__(self, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept: OrderedDict[AnswerKey, KeptAnswer] = OrderedDict()
        self._kept_bytes = 0
        self._newest: dict[tuple[str, str, str], AnswerKey] = {}

    def get(self, key: AnswerKey) -> KeptAnswer | None:
        """Return the answer made of `key`, if it is kept."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def drop(self, key: AnswerKey) -> None:
        """Keep the answer made of `key` no longer, if it is kept."""
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._kept_bytes -= len(dropped.body)
            if self._newest.get(place := key.place()) == key:
                del self._newest[place]

    def keep(self, key: AnswerKey, body: bytes) -> KeptAnswer:
        """Return the answer with its tag, and keep it, unless a newer one is kept, or it alone is over the bound."""
        answer = KeptAnswer(key.etag(), body)
        if key in self._kept or len(body) > self._kept_bytes_max:
            return answer
        place = key.place()
        if (before := self._newest.get(place)) is not None:
            if is_older(key.metadata_location, before.metadata_location):
                return answer
            self.drop(before)
        self._kept[key], self._newest[place] = answer, key
        self._kept_bytes += len(body)
        while self._kept_bytes > self._kept_bytes_max:
            self.drop(next(iter(self._kept)))
        return answer
