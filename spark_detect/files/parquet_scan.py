# SPDX-License-Identifier: Apache-2.0
"""
One task of a scan: reads row groups with pyarrow, counts patterns in columns, returns the counts. No Spark here.

A file that is missing, truncated, encrypted or of another format fails its scan and no other. Whether an error is the
fault of the file or of its storage is decided by reading the file's first and last byte again: if that works, the file
is damaged, otherwise the storage is unavailable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ledger.format.events import ScanFault
from projections.errors import FileMissingError, FileUnreadableError, SecretMissingError, StorageUnavailableError
from projections.lake.storage import S3_SCHEMES, Storage, classify_error
from spark_detect.classify import ColumnCounts
from spark_detect.classify.columns import as_texts, leaves, scan_array
from spark_detect.errors import ScanError
from spark_detect.job_folder import Lake
from spark_detect.tasks import FileSlice, ScannedColumn, Task, TaskResult

BATCH_ROWS: Final = 65_536
"""Rows that are in memory at a time."""
FIELD_ID: Final = b"PARQUET:field_id"


def run_task(task: Task, lake: Lake) -> TaskResult:
    """
    Return what `task` counts. The result says what is wrong with a file or its storage.
    """
    scan = task.scan.format()
    if task.fault is not None:
        return TaskResult(scan=scan, fault=task.fault, at_fault=task.at_fault)
    tally = _Tally()
    try:
        if task.slices:
            storage = lake.storage_of(task.catalog)
            for each in task.slices:
                _scan_slice(storage, each, task.columns, tally)
    except ScanError as error:
        return TaskResult(scan=scan, fault=error.fault, at_fault=error.file)
    except (StorageUnavailableError, SecretMissingError):
        return TaskResult(scan=scan, is_postponed=True)
    return TaskResult(
        scan=scan,
        rows=tally.rows if task.counts_rows else 0,
        cells=sum(counts.values for counts in tally.columns.values()),
        bytes_read=tally.bytes_read,
        field_ids=tuple(tally.columns),
        counts=tuple(counts.to_ints() for counts in tally.columns.values()),
    )


@dataclass(slots=True, kw_only=True)
class _Tally:
    rows: int = 0
    bytes_read: int = 0
    columns: dict[int, ColumnCounts] = field(default_factory=dict)

    def add(self, field_id: int, counts: ColumnCounts) -> None:
        self.columns[field_id] = self.columns.get(field_id, ColumnCounts()) + counts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A column of a Parquet file: its number there, its path there, and the column of the table that it is."""

    number: int
    path: str
    column: ScannedColumn

    @property
    def field_id(self) -> int:
        """What it is counted under."""
        return self.column.field_id


def _scan_slice(storage: Storage, each: FileSlice, columns: Sequence[ScannedColumn], tally: _Tally) -> None:
    try:
        filesystem, path = storage.filesystem(each.location)
    except FileUnreadableError as error:
        raise ScanError(ScanFault.FILE_UNREADABLE, file=each.location, message=str(error)) from error
    is_remote = each.location.partition("://")[0] in S3_SCHEMES
    reading = _reading(filesystem, path, each.location)
    with reading:
        stream = filesystem.open_input_file(path)
    with stream:
        with reading:
            file = pq.ParquetFile(stream, pre_buffer=is_remote)
            groups = _row_groups(file, each)
            chosen = list(_leaves_of(file, columns))
            looked_at = _count_unread(file, groups, chosen, tally)
            batches = file.iter_batches(
                batch_size=BATCH_ROWS,
                row_groups=groups,
                columns=[leaf.path for leaf in looked_at],
                use_threads=False,
            )
        while looked_at and groups:
            with reading:
                batch = next(batches, None)
            if batch is None:
                return
            _count_batch(batch, looked_at, each.location, tally)


@dataclass(slots=True)
class _reading:  # noqa: N801 - reads as what it is, a context
    """Turns what pyarrow raises while the file at `location` is read into whose fault it is."""

    filesystem: pafs.FileSystem
    path: str
    location: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _stack: object) -> None:
        if isinstance(error, OSError | pa.ArrowException | UnicodeDecodeError):
            raise _blame(self.filesystem, self.path, self.location, error) from error


def _row_groups(file: pq.ParquetFile, each: FileSlice) -> list[int]:
    count = file.metadata.num_row_groups
    if each.row_groups is None:
        return list(range(count))
    if max(each.row_groups, default=-1) >= count:
        message = f"expected {max(each.row_groups) + 1} row groups or more, found {count}"
        raise ScanError(ScanFault.FILE_UNREADABLE, file=each.location, message=message)
    return list(each.row_groups)


def _count_unread(file: pq.ParquetFile, groups: Sequence[int], chosen: Sequence[_Leaf], tally: _Tally) -> list[_Leaf]:
    """Count what the file's own statistics tell; return the columns that have to be read."""
    metadata = file.metadata
    tally.rows += sum(metadata.row_group(group).num_rows for group in groups)
    looked_at = []
    for leaf in chosen:
        values = None if _is_looked_at(file, leaf) else _values(metadata, groups, leaf)
        if values is not None:
            tally.add(leaf.field_id, ColumnCounts(values=values))
            continue
        looked_at.append(leaf)
        chunks = (metadata.row_group(group).column(leaf.number) for group in groups)
        tally.bytes_read += sum(chunk.total_compressed_size for chunk in chunks)
    return looked_at


def _count_batch(batch: pa.RecordBatch, looked_at: Sequence[_Leaf], location: str, tally: _Tally) -> None:
    arrays = [
        array
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for _, array in leaves(name, column)
    ]
    if len(arrays) != len(looked_at):
        message = "two columns of the file have one path"
        raise ScanError(ScanFault.FILE_UNREADABLE, file=location, message=message)
    for leaf, array in zip(looked_at, arrays, strict=True):
        tally.add(leaf.field_id, scan_array(as_texts(array) if leaf.column.is_text else array))


def _leaves_of(file: pq.ParquetFile, columns: Sequence[ScannedColumn]) -> Iterator[_Leaf]:
    """
    Yield the file's columns that are to be read, in the file's order.

    They go by field id; in a file without any (one that was written before its table was Iceberg's) by path.
    """
    by_id = {column.field_id: column for column in columns}
    by_path = {column.path: column for column in columns}
    found = [leaf for each in file.schema_arrow for leaf in _leaf_fields(each, each.name)]
    has_ids = any(field_id is not None for _, field_id, _ in found)
    for number, (path, field_id, _) in enumerate(found):
        chosen = (by_id.get(field_id) if field_id is not None else None) if has_ids else by_path.get(path)
        if chosen is not None:
            yield _Leaf(number=number, path=file.schema.column(number).path, column=chosen)


def _leaf_fields(arrow: pa.Field, path: str) -> Iterator[tuple[str, int | None, pa.DataType]]:
    kind = arrow.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaf_fields(kind.field(number), f"{path}.{kind.field(number).name}")
    elif pa.types.is_map(kind):
        yield from _leaf_fields(kind.key_field, f"{path}.key")
        yield from _leaf_fields(kind.item_field, f"{path}.value")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaf_fields(kind.value_field, f"{path}.element")
    else:
        number = (arrow.metadata or {}).get(FIELD_ID, b"")
        yield path, int(number) if number.lstrip(b"-").isdigit() else None, kind


def _is_looked_at(file: pq.ParquetFile, leaf: _Leaf) -> bool:
    """Return whether values of the column can match a pattern: texts, and numbers (cards)."""
    if leaf.column.unread is not None:
        return False
    column = file.schema.column(leaf.number)
    logical = column.logical_type.type
    if column.physical_type in {"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}:
        return logical not in {"UUID", "FLOAT16"}
    return column.physical_type in {"INT32", "INT64"} and logical not in {"DATE", "TIME", "TIMESTAMP"}


def _values(metadata: Any, groups: Sequence[int], leaf: _Leaf) -> int | None:
    """Return how many values of a column are not null, as the file's own statistics say; None if they do not."""
    values = 0
    for group in groups:
        statistics = metadata.row_group(group).column(leaf.number).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        values += statistics.num_values
    return values


def _blame(
    filesystem: pafs.FileSystem, path: str, location: str, error: Exception
) -> ScanError | FileMissingError | FileUnreadableError | StorageUnavailableError:
    """Return what `error` means: the file's fault, or its storage's."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, OSError):
        known = classify_error(location, error)
        if isinstance(known, FileMissingError):
            return ScanError(ScanFault.FILE_MISSING, file=location, message=str(known))
        if isinstance(known, FileUnreadableError):
            return ScanError(ScanFault.FILE_UNREADABLE, file=location, message=str(known))
    try:
        with filesystem.open_input_file(path) as stream:
            size_bytes = stream.size()
            stream.read_at(1, 0)
            tail = stream.read_at(min(4, size_bytes), size_bytes - min(4, size_bytes))
    except (OSError, pa.ArrowException):
        return StorageUnavailableError(f"{location}: the storage does not answer: {text}")
    # Magic of a file with an encrypted footer (Parquet modular encryption, section 5.4).
    is_encrypted = bytes(tail) == b"PARE" or "decrypt" in text.lower() or "encrypt" in text.lower()
    fault = ScanFault.FILE_ENCRYPTED if is_encrypted else ScanFault.FILE_UNREADABLE
    return ScanError(fault, file=location, message=text)
