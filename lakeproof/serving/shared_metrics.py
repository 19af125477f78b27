# SPDX-License-Identifier: Apache-2.0
"""
The metrics of several processes as if they were one's: counters and gauges are summed.

Each process publishes its metrics, in the format of Prometheus, in an area of memory that all share. Any of them can be
asked for the sum; what it adds of the others is `PUBLISHED_S` old at most. When a process has ended, the supervisor
adds its counters to an area of its own, so that no sum falls, which Prometheus would take for a restart.

Guarantee: a reader sees a text as it was published, whenever a writer dies. Each area has two buffers with checksums,
written in turn.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from ledger.store.notifications import wait_for_any

PUBLISHED_S: Final = 1.0
"""How often a process publishes its metrics."""
TEXT_BYTES_MAX: Final = 2**20
"""Of one process's metrics; a longer text is not published. Only pages that are written to take memory."""
RESTARTS: Final = "lakeproof_process_restarts_total"

_HEADER: Final = struct.Struct("<QII")
"""Of a buffer: its sequence number, the length of its text in bytes, and their checksum."""
_BUFFER_BYTES: Final = _HEADER.size + TEXT_BYTES_MAX
_SUPERVISOR: Final = ""
"""The name of the supervisor's own area."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


class SharedMetrics:
    """
    The areas of some processes, by name. Make it before they are forked.

    An area is written by the process whose it is, and the supervisor's by the supervisor: `started` and `ended`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        areas = (_SUPERVISOR, *names)
        self._memory = mmap.mmap(-1, 2 * _BUFFER_BYTES * len(areas))
        self._offsets = {name: 2 * _BUFFER_BYTES * number for number, name in enumerate(areas)}
        # The supervisor changes these; a process has those of the moment in which it was forked.
        self._starts = dict.fromkeys(names, 0)
        self._folded = dict.fromkeys(names, 0)
        self._ended = ""
        """The counters of processes that have ended."""

    def started(self, name: str) -> None:
        """A process is about to be forked. The supervisor's."""
        self._starts[name] += 1
        if self._starts[name] > 1:
            self._write_own()

    def ended(self, name: str) -> None:
        """A process has ended: keep what it has counted. The supervisor's."""
        start, text = self._read(name)
        if start == self._starts[name] > self._folded[name]:
            self._ended = sum_metrics([self._ended, _counters_of(text)])
        self._folded[name] = self._starts[name]
        self._write_own()

    def of(self, name: str) -> ProcessMetrics:
        """Return those of the process `name`, for this process."""
        return ProcessMetrics(self, name)

    def publish(self, name: str, text: str) -> None:
        """Show others the metrics of the process `name`, which is this one."""
        self._write(name, f"{self._starts[name]}\n{text}")

    def collect(self, name: str, own: str) -> str:
        """Return the metrics of all processes, with `own` as those of the process `name`, which is this one."""
        self.publish(name, own)  # or the sum would fall if it died before it publishes again
        while True:
            ended = self._read_bytes(_SUPERVISOR)
            folded, kept = self._read_own(ended)
            texts = [kept, own]
            for other in self._starts.keys() - {name}:
                start, text = self._read(other)
                if start > folded.get(other, 0):
                    texts.append(text)
            if self._read_bytes(_SUPERVISOR) == ended:  # or one that was read has been added meanwhile
                return sum_metrics(texts)

    def _write_own(self) -> None:
        restarts = "".join(
            f'{RESTARTS}{{process="{name}"}} {starts - 1}\n' for name, starts in self._starts.items() if starts
        )
        about = f"# HELP {RESTARTS} Processes that were started again.\n# TYPE {RESTARTS} counter\n"
        self._write(_SUPERVISOR, f"{json.dumps(self._folded)}\n{self._ended}{about}{restarts}")

    def _read_own(self, data: bytes) -> tuple[dict[str, int], str]:
        folded, _, text = data.decode().partition("\n")
        return json.loads(folded) if folded else {}, text

    def _read(self, name: str) -> tuple[int, str]:
        """Return which start of a process has published last, and what."""
        start, _, text = self._read_bytes(name).decode().partition("\n")
        return int(start or 0), text

    def _buffers(self, name: str) -> Iterable[tuple[int, int, bytes]]:
        """Yield the buffers of an area whose checksum is right: sequence number, offset, text."""
        for offset in (self._offsets[name], self._offsets[name] + _BUFFER_BYTES):
            sequence, length, checksum = _HEADER.unpack_from(self._memory, offset)
            text = self._memory[offset + _HEADER.size : offset + _HEADER.size + min(length, TEXT_BYTES_MAX)]
            if checksum == zlib.crc32(text, sequence & 0xFFFF_FFFF):
                yield sequence, offset, text

    def _read_bytes(self, name: str) -> bytes:
        return max(self._buffers(name), default=(0, 0, b""))[2]

    def _write(self, name: str, text: str) -> None:
        data = text.encode()
        if len(data) > TEXT_BYTES_MAX:
            return
        first = self._offsets[name]
        sequence, newest, _ = max(self._buffers(name), default=(0, first, b""))
        offset = first if newest != first else first + _BUFFER_BYTES
        checksum = zlib.crc32(data, (sequence + 1) & 0xFFFF_FFFF)
        self._memory[offset + _HEADER.size : offset + _HEADER.size + len(data)] = data
        _HEADER.pack_into(self._memory, offset, sequence + 1, len(data), checksum)


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """The metrics of one process among those of the others."""

    _shared: SharedMetrics
    _name: str

    def collect(self, own: str) -> str:
        """Return the metrics of all processes, with `own` as those of this one."""
        return self._shared.collect(self._name, own)

    async def keep_publishing(self, own: Callable[[], str], stop: asyncio.Event) -> None:
        """Show others what `own` returns, until `stop` is set; then once more."""
        while not stop.is_set():
            await wait_for_any(stop, None, timeout_s=PUBLISHED_S)
            self._shared.publish(self._name, own())


def sum_metrics(texts: Iterable[str]) -> str:
    """
    Return one text in the format of Prometheus with the sum of each sample of `texts`; of times of creation the first.
    """
    families: dict[str, Metric] = {}
    sums: dict[str, dict[_Key, float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            values = sums.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sample.labels.items()))
                if key not in values:
                    values[key] = sample.value
                elif sample.name.endswith("_created"):
                    values[key] = min(values[key], sample.value)
                else:
                    values[key] += sample.value
    for name, family in families.items():
        for (sample_name, labels), value in sums[name].items():
            family.add_sample(sample_name, dict(labels), value)
    return _format(families.values())


def _counters_of(text: str) -> str:
    """Return the metrics of a process that go on counting after its end: all but gauges."""
    return _format(family for family in text_string_to_metric_families(text) if family.type != "gauge")


class _Families(Collector):
    """Metrics as `generate_latest` takes them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _format(families: Iterable[Metric]) -> str:
    return generate_latest(_Families(families)).decode()
