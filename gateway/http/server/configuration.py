"""
How the application is served: uvicorn listens, speaks TLS and stops in order; connections are ours.
"""

from __future__ import annotations

from typing import Any, Final, cast

from starlette.types import ASGIApp
from uvicorn import Config

from gateway.http.server.connection import connections_made_by
from gateway.http.server.connections import Connections

SHUTDOWN_S: Final = 10


def server_config(app: ASGIApp, connections: Connections | None = None) -> Config:
    """
    Return how `app` is served, over connections that are bounded and counted as `connections` says.
    """
    return Config(
        cast("Any", app),
        http=cast("Any", connections_made_by(app, connections or Connections())),
        ws="none",  # a connection that changed to another protocol would be out of bounds
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,  # see `clients.py`: uvicorn would believe whoever comes from loopback
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
