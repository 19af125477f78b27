# SPDX-License-Identifier: Apache-2.0
"""
The HTTP/1.1 server in front of the application, with bounds on each connection and on their number.

Read `connection.py` first. `head.py` and `body.py` parse requests, `exchange.py` is one request and its answer in ASGI,
`connections.py` bounds all connections of a process, `clients.py` determines the client's address behind proxies.
`tls.py` is TLS below a connection. llhttp (`httptools`) is the parser; uvicorn listens and shuts down in order
(`configuration.py`).
"""
