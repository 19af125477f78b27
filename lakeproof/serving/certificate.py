# SPDX-License-Identifier: Apache-2.0
"""
The certificate that a gateway process serves now, exchanged when its files are.

New connections get the new certificate; those that are open keep theirs. A pair that cannot be used is refused, and the
one before goes on being served: certificates are replaced by other programs, whose faults must not end the gateway.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from lakeproof.errors import SettingsError
from lakeproof.tls_settings import TlsFiles, load_certificate
from ledger.store.notifications import wait_for_any
from projections.exposition import Metric, MetricKind, Sample, format_metrics

LOOK_S: Final = 2.0
"""How often the files are looked at."""

_log = logging.getLogger(__name__)


class CurrentCertificate:
    """The certificate in `files`. Event loop only, but for `look`, which one thread at a time calls."""

    def __init__(self, files: TlsFiles, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """
        Load the certificate. Raises as `load_certificate`.
        """
        self._files = files
        self._clock = clock
        self._judged = self._seen = files.state()
        self._served = load_certificate(files, now=clock())
        self._is_refused = False

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is served with."""
        return self._served.context

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Look at the files until `stop` is set."""
        while not stop.is_set():
            await wait_for_any(stop, None, timeout_s=LOOK_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """
        Serve what the files hold now, if they were changed since the last look but one.

        What has changed since the last look may still change: two files are never replaced at once.
        """
        before, self._seen = self._seen, self._files.state()
        if self._seen == self._judged or self._seen != before:
            return
        self._judged = self._seen
        try:
            self._served = load_certificate(self._files, now=self._clock())
        except SettingsError as error:
            self._is_refused = True
            _log.error("the new certificate is refused, and the one before is still served: %s", error)
        else:
            self._is_refused = False
            _log.info("new connections get the certificate that ends at %s", self._served.ends_at.isoformat())

    def metrics(self) -> str:
        """Return the metrics of the certificate, in the format of Prometheus."""
        gauges = {
            "lakeproof_tls_certificate_ends": (
                "When the certificate that this process serves expires, in seconds since 1970.",
                int(self._served.ends_at.timestamp()),
            ),
            "lakeproof_tls_certificate_refused": (
                "1 if the files hold a certificate that was refused, so that the one before is served; else 0.",
                int(self._is_refused),
            ),
        }
        return format_metrics(
            Metric(name=name, kind=MetricKind.GAUGE, help=text, samples=[Sample(labels={}, value=value)])
            for name, (text, value) in gauges.items()
        )
