# SPDX-License-Identifier: Apache-2.0
"""
uvicorn's configuration: it listens and shuts down in order; connections are handled by `connection.py` and `tls.py`.
"""

from __future__ import annotations

from typing import Any, Final, cast

from starlette.types import ASGIApp
from uvicorn import Config

from gateway.http.server.connection import connections_made_by
from gateway.http.server.connections import Connections
from gateway.http.server.tls import CurrentContext, tls_connections_made_by

SHUTDOWN_S: Final = 10


def server_config(app: ASGIApp, connections: Connections | None = None, *, tls: CurrentContext | None = None) -> Config:
    """
    Return the configuration that serves `app`, with `connections` to bound and count connections; `tls` returns the
    context for each of them (None: without TLS).
    """
    connections = connections or Connections()
    make = connections_made_by(app, connections) if tls is None else tls_connections_made_by(app, connections, tls)
    return Config(
        cast("Any", app),
        http=cast("Any", make),
        ws="none",  # a connection with another protocol would have no bounds
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,  # see `clients.py`: uvicorn would trust any peer on loopback
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
