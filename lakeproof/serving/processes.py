# SPDX-License-Identifier: Apache-2.0
"""
The processes of `lakeproof up`, and which duties each has.

    signer         confirms the logs, then signs, anchors, publishes, erases
    gateway-N      answers requests; all of them accept from one socket
    projections    applies what the logs get to the read models
    streams        S3 events, the poller, alerts, the outbox
    reconciler     settles open decisions, deletes files of purged tables, and keeps Spark's process running

The signer is the first stage, since the logs accept nothing before it has confirmed them. The modules of a process are
imported shortly before the first process that needs them is forked (`supervisor.py`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.identity.request_rates import SharedCounts
from lakeproof.installation import Installation
from lakeproof.messages import Say
from lakeproof.serving.listening import url_of
from lakeproof.serving.shared_metrics import SharedMetrics
from lakeproof.serving.supervisor import Line, Plan, Work
from lakeproof.settings import Settings

if TYPE_CHECKING:  # see above
    from lakeproof.serving.duties.duty import Duty

GATEWAYS_MAX: Final = 4
"""Gateway processes, if the settings do not say how many."""

BEHIND: Final = 5
"""The niceness of what follows the log: it gets a quarter of a processor that requests ask for, too."""


def gateway_names(settings: Settings) -> list[str]:
    """Return the names of the gateway processes: as many as the settings say, else one per core but one."""
    count = settings.gateway_processes or min(max(cores() - 1, 1), GATEWAYS_MAX)
    return [f"gateway-{number}" for number in range(1, count + 1)]


def process_names(settings: Settings) -> list[str]:
    """Return the names of all processes, in the order in which they are started."""
    streams = ["streams"] if settings.streams else []
    return ["signer", *gateway_names(settings), "projections", *streams, "reconciler"]


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """
    What the processes of one installation are made of; `listener` is the gateways' socket, in the folder `sockets` they
    have those for each other, and in `counts` they count requests.
    """

    installation: Installation
    listener: socket.socket
    sockets: Path
    shared: SharedMetrics
    counts: SharedCounts
    say: Say

    def plans(self) -> list[Plan]:
        """Return the plans of all processes, in the order of `process_names`."""
        return [self._plan(name) for name in process_names(self.installation.settings)]

    def _plan(self, name: str) -> Plan:
        match name:
            case "signer":
                return Plan(name=name, stage=0, load=self._signer)
            case "projections":
                return Plan(name=name, stage=1, load=self._projections)
            case "streams":
                return Plan(name=name, stage=1, load=self._streams)
            case "reconciler":
                return Plan(name=name, stage=1, load=self._reconciler)
            case _:
                return Plan(name=name, stage=1, load=partial(self._gateway, name))

    def _signer(self) -> Work:
        from lakeproof.serving.duties.signer import sign

        return self._work("signer", [sign])

    def _gateway(self, name: str) -> Work:
        from lakeproof.serving.child import work
        from lakeproof.serving.duties.gateway import answer_requests

        names = gateway_names(self.installation.settings)
        sockets = [self.sockets / each for each in names] if len(names) > 1 else []
        answer = partial(
            answer_requests,
            listener=self.listener,
            shared=self.shared.of(name),
            own=names.index(name),
            counts=self.counts,
            sockets=sockets,
        )
        return partial(work, self.installation, [answer], self.say, name)

    def _projections(self) -> Work:
        from lakeproof.serving.duties.projections import project

        return self._work("projections", [project], niceness=BEHIND)

    def _streams(self) -> Work:
        from lakeproof.serving.duties.streams import stream

        gateway = url_of(self.listener, scheme=self.installation.settings.scheme)
        return self._work("streams", [partial(stream, gateway=gateway)], niceness=BEHIND)

    def _reconciler(self) -> Work:
        from lakeproof.serving.duties.detection import detect
        from lakeproof.serving.duties.purges import purge
        from lakeproof.serving.duties.reconciler import reconcile

        duties = [reconcile, purge, *([detect] if self.installation.settings.detect else [])]
        return self._work("reconciler", duties)

    def _work(self, name: str, duties: Sequence[Duty], *, niceness: int = 0) -> Work:
        """Return the work of a process that accepts no connections, so much nicer to others than this one."""
        from lakeproof.serving.child import work

        def apart(line: Line) -> int:
            os.nice(niceness)
            self.listener.close()  # only gateways hold it: when they have ended, connections are refused
            return work(self.installation, duties, self.say, name, line)

        return apart
