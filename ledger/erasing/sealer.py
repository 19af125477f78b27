# SPDX-License-Identifier: Apache-2.0
"""
Seals the parts of groups before they are appended, and waits for the keys of the people they are about.

Keys that are not cached are read or created in threads, because that waits for the disk and for other processes. How
long an append waits for them is bounded. `format/sealing.py` defines what a sealed part is, and how it is opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final
from uuid import UUID

from ledger.format.event import SYSTEM_ACTOR, Part, PreparedEvent
from ledger.format.sealing import (
    DATA_KEY_SIZE_BYTES,
    KEY_WAIT_S,
    NONCE_SIZE_BYTES,
    DataKey,
    KeyOpener,
    Opener,
    RandomBytes,
    SealedPart,
    SubjectKeys,
    SubjectKeysError,
    part_context,
)
from ledger.format.sequence import Group

THREADS_MAX: Final = 4
"""Threads that wait for keys. More would not help: one process at a time changes the folder."""


class Sealer:
    """
    Seals the parts of groups before they are appended (implements `Seals`); `random` gives that many random bytes.
    """

    def __init__(self, keys: SubjectKeys, *, random: RandomBytes = os.urandom) -> None:
        # Set once. `seal` runs on the event loop, `_found_or_created` in the threads. Both use `_keys`, which locks.
        self._keys = keys
        self._random = random
        # A pool of its own: work that waits for keys must not block the other threads of the process.
        self._threads = ThreadPoolExecutor(max_workers=THREADS_MAX, thread_name_prefix="subject keys")
        self.opener: Opener = KeyOpener(keys)

    async def seal(self, group: Group, *, timeout_s: float = KEY_WAIT_S) -> Group:
        """
        Return `group` with every part that has a subject sealed; a group without such parts is returned unchanged.

        A part about an erased person is sealed with a key that is discarded: the log has its commitment, and its
        content can never be read.

        Raises:
            SubjectKeysError: if the keys cannot be used, or not within `timeout_s`; nothing may be appended then.
        """
        subjects = _subjects(group)
        if not subjects:
            return group
        keys: dict[str, DataKey] = {}
        missing: list[str] = []
        for subject in subjects:
            if (key := self._keys.cached(subject)) is None:
                missing.append(subject)
            else:
                keys[subject] = key
        if missing:
            keys |= await self._fetched(missing, timeout_s)
        return Group(
            id=group.id,
            then=tuple([self._seal_event(event, keys) for event in group.then]),
            otherwise=tuple([self._seal_event(event, keys) for event in group.otherwise]),
            guard=group.guard,
            as_of=group.as_of,
        )

    async def _fetched(self, subjects: Sequence[str], timeout_s: float) -> dict[str, DataKey]:
        """Return keys that are not cached; in a thread, because that waits for the disk, and for other processes."""
        work = partial(copy_context().run, self._found_or_created, subjects)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError as error:
            raise SubjectKeysError(
                f"expected {len(subjects)} keys of sealed parts within {timeout_s:g} s, found none: nothing was "
                "appended; see that their folder, and what holds the key-encryption key, can be reached"
            ) from error

    def _found_or_created(self, subjects: Sequence[str]) -> dict[str, DataKey]:
        return {subject: self._keys.find_or_create(subject) or self._discarded_key() for subject in subjects}

    def _discarded_key(self) -> DataKey:
        return DataKey(UUID(bytes=self._random(16), version=4), self._random(DATA_KEY_SIZE_BYTES))

    def _seal_event(self, event: PreparedEvent, keys: Mapping[str, DataKey]) -> PreparedEvent:
        if not event.parts:
            return event
        nonces = self._random(NONCE_SIZE_BYTES * len(event.parts))  # at once: each call asks the system
        return PreparedEvent(
            type=event.type,
            version=event.version,
            key=event.key,
            actor=event.actor,
            data=event.data,
            event=event.event,
            parts=tuple(
                [
                    _sealed(part, keys, nonces[at : at + NONCE_SIZE_BYTES])
                    for at, part in zip(range(0, len(nonces), NONCE_SIZE_BYTES), event.parts, strict=True)
                ]
            ),
            is_control=event.is_control,
        )


def _sealed(part: Part, keys: Mapping[str, DataKey], nonce: bytes) -> Part:
    if part.subject is None or (key := keys.get(part.subject)) is None:
        return part
    sealed = key.seal(part.salt + part.payload, context=part_context(part.subject, part.name), nonce=nonce)
    return SealedPart(
        name=part.name, payload=part.payload, salt=part.salt, subject=part.subject, key_id=key.id, sealed=sealed
    )


def _subjects(group: Group) -> set[str]:
    """Return whom the parts of a group are about."""
    return {
        part.subject
        for event in (*group.then, *group.otherwise)
        for part in event.parts
        if part.subject is not None and part.subject != SYSTEM_ACTOR
    }
