# SPDX-License-Identifier: Apache-2.0
"""
A bucket of S3 under object lock: one object per checkpoint, which nobody can change or remove before its time.

The bucket's owner creates it with object lock and a default retention, best in another account, in compliance mode. A
bucket without both is refused, because whoever holds its key could empty it. Objects are named after the log and the
size, and an existing object is never written again. All versions are read: an overwritten one still exists.

The only module of this package that imports boto3, and only when a bucket is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ledger.anchoring.archive import NOTE_SIZE_BYTES_MAX, NOTES_MAX, ArchivedNotes, ArchiveError, BucketAccess, name_of
from ledger.errors import FormatError
from ledger.format.note import parse_note

TIMEOUT_S: Final = 10
READERS: Final = 16
PAGES_MAX: Final = 100
"""Of 1,000 versions each."""
_NAMED: Final = re.compile("[0-9]{19}")
_NO_LOCK: Final = frozenset({"ObjectLockConfigurationNotFoundError", "ObjectLockConfigurationNotFound"})
_THERE: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketArchive:
    """The objects below a prefix of a bucket (implements `CheckpointArchive`)."""

    bucket: str
    prefix: str = ""
    access: BucketAccess = field(default_factory=BucketAccess, repr=False)

    @property
    def where(self) -> str:
        """The archive as users name it."""
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def add(self, origin: str, *, size: int, note: bytes) -> None:
        """
        Write `note` as an object of its own, if there is none of that size.

        Raises:
            ArchiveError: if the bucket cannot be reached or written, has no object lock with a default retention, or
                holds another checkpoint of that size.
        """
        key = f"{self._folder(origin)}{size:019d}"
        with self._client() as client:
            self._check_locked(client)
            if not self._put(client, key, note):
                there = client.get_object(Bucket=self.bucket, Key=key)["Body"].read(NOTE_SIZE_BYTES_MAX + 1)
                if _text(there) != _text(note):
                    raise ArchiveError(f"{self.where}: expected the same checkpoint at size {size}, found another")

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> ArchivedNotes:
        """
        Return every version of every object of the log, last written first.

        Raises:
            ArchiveError: if the bucket cannot be reached or read, or an object is too large for a note.
        """
        with self._client() as client:
            found = sorted(self._versions(client, self._folder(origin)), reverse=True)

            def get(version: tuple[datetime, str, str]) -> bytes:
                _, key, version_id = version
                answer = client.get_object(Bucket=self.bucket, Key=key, VersionId=version_id)
                return bytes(answer["Body"].read(NOTE_SIZE_BYTES_MAX + 1))

            with ThreadPoolExecutor(READERS) as readers:
                notes = tuple(readers.map(get, found[:notes_max]))
        if any(len(note) > NOTE_SIZE_BYTES_MAX for note in notes):
            raise ArchiveError(
                f"{self.where}: expected notes of at most {NOTE_SIZE_BYTES_MAX} bytes, found a larger one"
            )
        return ArchivedNotes(where=self.where, notes=notes, is_whole=len(found) <= notes_max)

    def _folder(self, origin: str) -> str:
        return (f"{self.prefix}/" if self.prefix else "") + name_of(origin) + "/"

    def _versions(self, client: Any, folder: str) -> Iterator[tuple[datetime, str, str]]:
        pages = client.get_paginator("list_object_versions").paginate(Bucket=self.bucket, Prefix=folder)
        for number, page in enumerate(pages, start=1):
            if number > PAGES_MAX:
                raise ArchiveError(f"{self.where}: expected at most {PAGES_MAX * 1000:,} versions, found more")
            for version in page.get("Versions", ()):
                if _NAMED.fullmatch(version["Key"].removeprefix(folder)):
                    yield version["LastModified"], version["Key"], version["VersionId"]

    def _check_locked(self, client: Any) -> None:
        from botocore.exceptions import ClientError

        try:
            lock = client.get_object_lock_configuration(Bucket=self.bucket)["ObjectLockConfiguration"]
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _NO_LOCK:
                raise
            lock = {}
        if lock.get("ObjectLockEnabled") != "Enabled" or not lock.get("Rule", {}).get("DefaultRetention"):
            raise ArchiveError(
                f"{self.where} has no object lock with a default retention, so whoever holds its key could remove what "
                "is kept there: name a bucket that was made with both"
            )

    def _put(self, client: Any, key: str, note: bytes) -> bool:
        """Write an object that was not there; False if it was."""
        from botocore.exceptions import ClientError

        kind = "text/plain; charset=utf-8"
        try:
            # S3 takes an object that will be locked only with a checksum.
            client.put_object(
                Bucket=self.bucket, Key=key, Body=note, ContentType=kind, IfNoneMatch="*", ChecksumAlgorithm="SHA256"
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _THERE:
                return False
            raise
        return True

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """Yield a client of S3, whose errors become ours. Any: boto3 creates its clients' methods at run time."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise ArchiveError(
                f"{self.where} needs the package boto3, which is not installed: pip install 'lakeproof[streams]'"
            ) from error
        try:
            yield boto3.session.Session().client(
                "s3",
                endpoint_url=self.access.endpoint,
                region_name=self.access.region,
                aws_access_key_id=self.access.access_key_id,
                aws_secret_access_key=self.access.secret_access_key,
                config=Config(
                    connect_timeout=TIMEOUT_S,
                    read_timeout=TIMEOUT_S,
                    retries={"total_max_attempts": 1},
                    max_pool_connections=READERS,
                ),
            )
        except (BotoCoreError, ClientError) as error:
            raise ArchiveError(f"{self.where}: {error!s:.300}") from error


def _text(note: bytes) -> bytes | str:
    """Return what a note says, without who has signed it; of what is no note, all of it."""
    try:
        return parse_note(note)[0]
    except FormatError:
        return note
