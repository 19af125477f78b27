# SPDX-License-Identifier: Apache-2.0
"""
What an object store says about new objects: S3's event notifications, parsed strictly. Pure.

Guarantee: a body yields the objects that were created, or `PoisonError`; no other error leaves this module. Both forms
are read that a queue can hold: S3's own message, and the same in the envelope of SNS. Source: Amazon S3 user guide,
"Event message structure" (versions 2.x), and Amazon SNS developer guide, "HTTP/HTTPS notification JSON format".

Of a table's files only two kinds say something: a metadata file is (an attempt at) a commit, a data file may become
part of one. Manifests, statistics and whatever else lies in a bucket say nothing that the metadata file does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote_plus

from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from streams.errors import PoisonError

BODY_SIZE_BYTES_MAX: Final = 1024 * 1024
"""The most that SQS takes as one message."""
KEY_SIZE_BYTES_MAX: Final = 1_024
"""The longest key of an object in S3."""

CREATED: Final = "ObjectCreated:"
TEST_EVENT: Final = "s3:TestEvent"
"""What S3 sends when notifications are set up: it is about no object."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Greedy: of several folders of that name the last one is the table's, since a catalog may keep tables below `data/`.
_METADATA_FILE = re.compile(r"(?:(?P<table>.+)/)?metadata/[^/]+\.metadata\.json(?:\.gz)?")
_DATA_FILE = re.compile(r"(?:(?P<table>.+)/)?data/.+\.(?:parquet|orc|avro)")


class FileKind(StrEnum):
    """What a new file of a table is."""

    METADATA = "metadata"
    DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedObject:
    """An object that was created; `key` is decoded."""

    bucket: str
    key: str

    @property
    def location(self) -> str:
        """The object as engines name it."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A new file that says something about the table whose folder is `table` (a location without a final slash)."""

    kind: FileKind
    table: str
    location: str


def parse_s3_event(body: str | bytes) -> tuple[CreatedObject, ...]:
    """
    Return the objects that a message of S3 names as created, in its order; none for S3's test message.

    Events of other kinds are skipped. But a message that has only such events is refused: its queue is subscribed to
    events that nothing here reads.

    Raises:
        PoisonError: if it is no such message; says what was expected and what was found.
    """
    message = _message(body)
    if message.get("Event") == TEST_EVENT:
        return ()
    records = message.get("Records")
    if not isinstance(records, list) or not records:
        raise PoisonError(f"expected S3's Records, a list that is not empty, found {records!r:.80}")
    created = [parsed for position, record in enumerate(records) if (parsed := _record(record, position))]
    if not created:
        raise PoisonError(f"expected ObjectCreated events, found {_name_of(records[0])!r:.80}: subscribe to no others")
    return tuple(created)


def table_file(created: CreatedObject) -> TableFile | None:
    """
    Return what a new object is to a table, or None if it says nothing about one.
    """
    for kind, pattern in ((FileKind.METADATA, _METADATA_FILE), (FileKind.DATA, _DATA_FILE)):
        if match := pattern.fullmatch(created.key):
            table = f"s3://{created.bucket}/{match['table'] or ''}".rstrip("/")
            return TableFile(kind=kind, table=table, location=created.location)
    return None


def _message(body: str | bytes) -> Mapping[str, Any]:
    """Return S3's own message, out of the envelope of SNS if it came in one."""
    message = _object(body, "message")
    if message.get("Type") != "Notification":
        return message
    inner = message.get("Message")
    if not isinstance(inner, str):
        raise PoisonError(f"Message of the SNS notification: expected a text, found {type(inner).__name__}")
    return _object(inner, "Message of the SNS notification")


def _object(text: str | bytes, what: str) -> Mapping[str, Any]:
    try:
        return parse_object(text, what=what, size_bytes_max=BODY_SIZE_BYTES_MAX)
    except FormatError as error:
        raise PoisonError(str(error)) from error


def _record(record: object, position: int) -> CreatedObject | None:
    where = f"Records[{position}]"
    name = _name_of(record)
    if not isinstance(name, str):
        raise PoisonError(f"{where}.eventName: expected a text, found {name!r:.80}")
    # S3 leaves the prefix away in messages; what speaks like S3 does not always.
    if not name.removeprefix("s3:").startswith(CREATED):
        return None
    bucket = _text(record, where, "s3", "bucket", "name")
    if not _BUCKET.fullmatch(bucket):
        raise PoisonError(f"{where}.s3.bucket.name: expected the name of a bucket, found {bucket!r:.80}")
    return CreatedObject(bucket=bucket, key=_key(_text(record, where, "s3", "object", "key"), f"{where}.s3.object.key"))


def _name_of(record: object) -> object:
    return record.get("eventName") if isinstance(record, dict) else None


def _text(value: object, where: str, *names: str) -> str:
    for name in names:
        where = f"{where}.{name}"
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value:
        raise PoisonError(f"{where}: expected a text that is not empty, found {value!r:.80}")
    return value


def _key(encoded: str, where: str) -> str:
    """Decode a key as S3 writes it into its messages: as a form's field, a space as a plus sign."""
    try:
        key = unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError as error:
        raise PoisonError(f"{where}: expected percent-encoded UTF-8, found {encoded!r:.80}") from error
    if found := _CONTROL.search(key):
        raise PoisonError(f"{where}: expected no control characters, found U+{ord(found[0]):04X}")
    if (size_bytes := len(key.encode())) > KEY_SIZE_BYTES_MAX:
        raise PoisonError(f"{where}: expected at most {KEY_SIZE_BYTES_MAX} bytes, found {size_bytes}")
    return key
