# SPDX-License-Identifier: Apache-2.0
"""
Places on this machine where nobody must be sent to, and every way to write them.

A trap listens and answers nothing: whoever has connected stands in its queue and is counted.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

LOOPBACK_SPELLINGS: Final = (
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7F000001",
    "0x7f.1",
    "0x7f.0.0.0x1",
    "0177.0.0.1",
    "0177.1",
    "017700000001",
    "00177.0.0.01",
    "127.0.0.1.",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0",
    "0x0",
    "0.0",
    "0.0.0.0",  # noqa: S104 - nothing is bound to it
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::0.0.0.1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::FFFF:7F00:0001]",
    "[::ffff:0.0.0.0]",
)
"""All of them lead to a trap on 127.0.0.1 or ::1, if they are followed."""

INSIDE: Final = (
    "127.0.0.2",
    "127.255.255.254",
    "10.0.0.1",
    "10.1",
    "167772161",
    "0xa000001",
    "012.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.1",
    "3232235521",
    "0300.0250.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "0.1.2.3",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "4294967295",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b:1::127.0.0.1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "[2a00:1450::5efe:7f00:1]",
    "[2a00:1450::200:5efe:10.0.0.1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd12:3456:789a::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fd00:42::42]",
    "[fe80::1]",
    "[fe80::a9fe:a9fe]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[ff0e::1]",
)
"""Addresses that are not for everybody, of other machines; none of them is ever connected to."""


@dataclass(frozen=True, slots=True)
class Trap:
    """Listens on 127.0.0.1 and ::1, on the same port."""

    listeners: tuple[socket.socket, ...]
    port: int

    @property
    def url(self) -> str:
        """Return its URL, as the IPv4 address."""
        return f"http://127.0.0.1:{self.port}"

    def caught(self) -> int:
        """Return how many have connected since the last call."""
        caught = 0
        for listener in self.listeners:
            while True:
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    break
                connection.close()
                caught += 1
        return caught


@contextmanager
def set_trap(address: str = "127.0.0.1", port: int = 0) -> Iterator[Trap]:
    """Yield a trap; at another address than 127.0.0.1 it listens there alone."""
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server((address, port), backlog=256))
        listeners = [first]
        port = first.getsockname()[1]
        if address == "127.0.0.1":
            listeners.append(
                stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6, backlog=256))
            )
        for listener in listeners:
            listener.setblocking(False)
        yield Trap(tuple(listeners), port)
