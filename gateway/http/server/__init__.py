"""
The HTTP/1.1 server in front of the application: what a connection may do, how long, and how many there may be.

Read `connection.py` first. `head.py` and `body.py` say which bytes are a request, `exchange.py` is one request and its
answer as ASGI has them, `connections.py` bounds all connections of a process, `clients.py` says whose request it is
where a proxy stands between. llhttp (`httptools`) parses; uvicorn listens, speaks TLS and stops in order
(`configuration.py`).
"""
