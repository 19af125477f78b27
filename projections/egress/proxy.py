# SPDX-License-Identifier: Apache-2.0
"""
A forward proxy on loopback, for libraries that resolve and connect by themselves: Arrow's S3 client, which is C++.

Such a library is configured to use this proxy only. The proxy makes every connection as `connecting.py` does, and only
to the destination of the caller's token, so neither a redirect nor a name server leads anywhere else. TLS passes
through end to end (CONNECT); without TLS it accepts GET and HEAD, since its callers only read.

It uses threads, not an event loop: its callers block, in processes that may have no event loop.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import threading
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from projections.egress.connecting import Resolve, connect_checked, resolve_host
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError

LOOPBACK: Final = "127.0.0.1"
CONNECTIONS_MAX: Final = 256
HEAD_SIZE_BYTES_MAX: Final = 64 * 1024
HEAD_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0
IDLE_S: Final = 60.0
"""An idle connection is closed after this."""
PAUSE_S: Final = 0.1
PIECE_BYTES: Final = 256 * 1024

_END: Final = b"\r\n\r\n"
_READING: Final = frozenset({"GET", "HEAD"})
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where one caller may go: `host` itself, or with `below` the names below it, on one port."""

    host: str
    port: int
    below: bool = False

    @classmethod
    def of_url(cls, url: str) -> Destination:
        """
        Return the destination of an http or https URL.

        Raises:
            ValueError: if it is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
            raise ValueError("expected an http or https URL with a host")
        return cls(host=parts.hostname.removesuffix("."), port=parts.port or _PORTS[parts.scheme])

    def holds(self, host: str, port: int) -> bool:
        """Return whether `host` and `port` are this destination."""
        host = host.lower().removesuffix(".")
        return port == self.port and (host.endswith(f".{self.host}") if self.below else host == self.host)


class _RefusedError(Exception):
    """A request that is answered by the proxy itself, with `status`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One request's head: where to, by which token, and the head as it is sent on (None: CONNECT)."""

    host: str
    port: int
    token: str
    onward: bytes | None


@dataclass(eq=False)
class EgressProxy:
    """
    One proxy, from `start` to the end of its process; its methods may be called from any thread.
    """

    rules: EgressRules
    """Set once; read by every thread."""
    resolve: Resolve = resolve_host
    """As `rules`."""
    _tokens: dict[tuple[Destination, ...], str] = field(default_factory=dict)
    """Read and written under `_lock`."""
    _destinations: dict[str, tuple[Destination, ...]] = field(default_factory=dict)
    """By token. Written under `_lock`; connections look a token up without it: one dict lookup is atomic."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(CONNECTIONS_MAX))
    """One permit per connection: acquired by the accepting thread, released by the thread that serves it."""
    _closed: threading.Event = field(default_factory=threading.Event)
    """Set by `close`; ends the accepting thread."""
    _listener: socket.socket = field(init=False)
    """Set by `start` before its thread begins; that thread accepts, `close` closes."""

    def start(self) -> None:
        """Listen on a free port of loopback, and serve until the process ends."""
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        threading.Thread(target=self._accept, name="egress", daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Accept no more connections; existing ones continue."""
        self._closed.set()
        # A thread that waits in accept() is woken by a shutdown alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def token(self, *destinations: Destination) -> str:
        """Return what opens these destinations: the user's name in the proxy's credentials, without a password."""
        with self._lock:
            token = self._tokens.setdefault(destinations, secrets.token_hex(16))
            self._destinations[token] = destinations
        return token

    def _accept(self) -> None:
        while not self._closed.is_set():
            self._turns.acquire()
            try:
                client, _ = self._listener.accept()
            except OSError:
                # Closed, or out of descriptors: then the queue is served once there are some again.
                self._turns.release()
                self._closed.wait(PAUSE_S)
                continue
            try:
                threading.Thread(target=self._serve, args=(client,), name="egress", daemon=True).start()
            except RuntimeError:  # no more threads: the reader sees a closed connection, as if its store were down
                self._turns.release()
                client.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with ExitStack() as stack, suppress(OSError):
                stack.enter_context(client)
                try:
                    server, onward, heads = self._open(client)
                except _RefusedError as refused:
                    client.sendall(_answer(refused.status, str(refused)))
                    return
                stack.enter_context(server)
                if heads is None:
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                _relay(client, server, onward, None if heads is None else heads.feed)
        finally:
            self._turns.release()

    def _open(self, client: socket.socket) -> tuple[socket.socket, bytes, _Heads | None]:
        """Return a connection to where the first request goes, what to send there first, and what reads the others."""
        deadline = monotonic() + HEAD_TIMEOUT_S
        received = b""
        while _END not in received:
            if len(received) > HEAD_SIZE_BYTES_MAX:
                raise _RefusedError(431, "the head is too long")
            client.settimeout(max(deadline - monotonic(), 0.001))
            piece = client.recv(PIECE_BYTES)
            if not piece:
                raise _RefusedError(400, "expected a request")
            received += piece
        head, _, rest = received.partition(_END)
        request = _parse(head)
        destinations = self._destinations.get(request.token)
        if destinations is None:
            raise _RefusedError(407, "expected the token of a destination")
        if not any(each.holds(request.host, request.port) for each in destinations):
            raise _RefusedError(403, "the token is for another destination")
        try:
            server = connect_checked(
                self.rules, request.host, request.port, timeout_s=CONNECT_TIMEOUT_S, resolve=self.resolve
            )
        except AddressRefusedError as error:
            raise _RefusedError(403, str(error)) from error
        except OSError as error:
            raise _RefusedError(502, "the destination does not answer") from error
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if request.onward is None:
            return server, rest, None
        heads = _Heads(request)
        try:
            return server, request.onward + heads.feed(rest), heads
        except _RefusedError:
            server.close()
            raise


@dataclass(eq=False, slots=True)
class _Heads:
    """The heads of one connection's requests, which go where the first one goes: `feed` returns them as sent on."""

    first: _Request
    _buffer: bytes = b""

    def feed(self, data: bytes) -> bytes:
        """
        Return what of the requests so far is whole; the rest is kept.

        Raises:
            _RefusedError: if one goes elsewhere, is too long, or would change something.
        """
        *heads, self._buffer = (self._buffer + data).split(_END)
        if len(self._buffer) > HEAD_SIZE_BYTES_MAX:
            raise _RefusedError(431, "the head is too long")
        onward = b""
        for head in heads:
            request = _parse(head)
            if (request.host, request.port, request.token) != (self.first.host, self.first.port, self.first.token):
                raise _RefusedError(403, "the connection is to another destination")
            if request.onward is None:
                raise _RefusedError(405, "expected GET or HEAD")
            onward += request.onward
        return onward


def _parse(head: bytes) -> _Request:
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        kept = [line for line, (name, _) in zip(lines, headers, strict=True) if not name.startswith("proxy-")]
        token = _token([value for name, value in headers if name == "proxy-authorization"])
        if not version.startswith("HTTP/1."):
            raise _RefusedError(505, "expected HTTP/1.1")
        if method == "CONNECT":
            parts = urlsplit(f"//{target}")
            return _Request(host=parts.hostname or "", port=parts.port or 0, token=token, onward=None)
        destination = Destination.of_url(target)
        parts = urlsplit(target)
    except ValueError as error:
        raise _RefusedError(400, "expected a request to a proxy") from error
    if parts.scheme != "http" or method not in _READING or _has_body(headers):
        raise _RefusedError(405, "expected GET or HEAD of an http URL, or CONNECT")
    path = target[len("http://") + len(parts.netloc) :]
    path = path if path.startswith("/") else f"/{path}"
    onward = "\r\n".join([f"{method} {path} {version}", *kept]).encode("latin-1") + _END
    return _Request(host=destination.host, port=destination.port, token=token, onward=onward)


def _token(credentials: list[str]) -> str:
    """Return the user's name of Basic credentials (RFC 7617); a name that opens nothing if there are none."""
    if len(credentials) != 1:
        return ""
    scheme, _, encoded = credentials[0].partition(" ")
    try:
        user = b64decode(encoded.strip(), validate=True).decode("latin-1").partition(":")[0]
    except Base64Error:
        return ""
    return user if scheme.lower() == "basic" else ""


def _has_body(headers: list[tuple[str, str]]) -> bool:
    return any(name == "transfer-encoding" or (name == "content-length" and value != "0") for name, value in headers)


def _answer(status: int, reason: str) -> bytes:
    body = reason.encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def _relay(client: socket.socket, server: socket.socket, first: bytes, onward: Callable[[bytes], bytes] | None) -> None:
    """Pass bytes both ways until one side is done or nothing passes any more; `onward` rewrites the client's."""
    for each in (client, server):
        each.settimeout(IDLE_S)
    if first:
        server.sendall(first)
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)
        while ready := selector.select(IDLE_S):
            for key, _ in ready:
                if key.fileobj is server:
                    if not (piece := server.recv(PIECE_BYTES)):
                        return
                    client.sendall(piece)
                    continue
                if not (piece := client.recv(PIECE_BYTES)):
                    return
                try:
                    server.sendall(piece if onward is None else onward(piece))
                except _RefusedError:
                    return


_proxies: dict[tuple[int, EgressRules], EgressProxy] = {}
"""By process id and rules; read and written under `_starting`."""
_starting: Final = threading.Lock()


def proxy_for(rules: EgressRules) -> EgressProxy:
    """
    Return the proxy of this process for `rules`, and start it at the first call. A forked process gets its own.
    """
    key = (os.getpid(), rules)
    with _starting:
        if key not in _proxies:
            proxy = EgressProxy(rules)
            proxy.start()
            _proxies[key] = proxy
        return _proxies[key]
