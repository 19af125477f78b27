# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof up`: a process for each duty (`processes.py`), started, supervised and stopped by this one.

A process that dies is started again after a pause, and the others go on (`supervisor.py`). One that meets corruption
ends all of them: people must decide what to do with a damaged log. After Ctrl-C and SIGTERM, requests that have begun
are finished, and the signer ends last.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from gateway.identity.request_rates import SharedCounts
from lakeproof.anchor_settings import NOT_PUBLISHED, is_published_outside
from lakeproof.installation import open_installation
from lakeproof.messages import Say
from lakeproof.serving.listening import listen, url_of, warn_without_tls
from lakeproof.serving.processes import Processes, gateway_names, process_names
from lakeproof.serving.shared_metrics import SharedMetrics
from lakeproof.serving.socket_folder import socket_folder, write_url
from lakeproof.serving.supervisor import Observer, Supervisor
from lakeproof.settings import Settings
from lakeproof.tls_settings import load_certificate, make_own_client, tls_files


def run_up(settings: Settings, say: Say) -> None:
    """
    Serve until SIGINT or SIGTERM. The gateway is announced when it has answered a request.

    Raises:
        LakeproofError: if the server, the database, the port or the certificate cannot be had, or a process met
            corruption.
    """
    # Before a database is made for a gateway that cannot listen, or has a certificate that it cannot serve.
    if (files := tls_files(settings)) is not None:
        load_certificate(files, now=datetime.now(UTC))
    with (
        closing(listen(settings.host, settings.port)) as listener,
        open_installation(settings, say) as installation,
        socket_folder(Path(settings.home)) as sockets,
    ):
        if files is None:
            warn_without_tls(listener, settings.host, say)
        else:
            make_own_client(files)
        url, unannounced = url_of(listener, scheme=settings.scheme), set(gateway_names(settings))
        write_url(sockets, url)

        def announce(name: str) -> None:
            if name in unannounced:
                unannounced.clear()
                if not is_published_outside(settings):
                    say(NOT_PUBLISHED)
                say(f"the console is at {url}/console; `lakeproof console login` makes a link that logs in there once")
                say(f"the gateway listens on {url}; Ctrl-C stops it")

        shared = SharedMetrics(process_names(settings))
        observer = Observer(started=shared.started, ready=announce, ended=shared.ended, stopping=listener.close)
        processes = Processes(
            installation=installation,
            listener=listener,
            sockets=sockets,
            shared=shared,
            counts=SharedCounts(len(gateway_names(settings))),
            say=say,
        )
        Supervisor(processes.plans(), say, observer=observer).run()
