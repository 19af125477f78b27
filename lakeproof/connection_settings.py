"""
The rows of the table of settings that are about connections to the gateway: how many, how long, and who asks.

The defaults let a body of 16 MiB arrive over a link of 64 kbit/s.
"""

from __future__ import annotations

from lakeproof.setting_kinds import Kind, Setting

CONNECTION_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="trusted_proxies",
        kind=Kind.NETWORKS,
        default="",
        meaning="addresses and networks of the proxies in front of the gateway, separated by commas: for whom they ask "
        "is what their X-Forwarded-For or Forwarded says; from anyone else these headers mean nothing",
    ),
    Setting(
        name="connections_max",
        kind=Kind.INTEGER,
        default=768,
        unit="connections",
        least=8,
        most=60_000,
        meaning="connections that may be open; beyond it one that waits for its client gives way, or the new one is "
        "answered 503 (each takes a file descriptor of the process)",
    ),
    Setting(
        name="connections_per_address_max",
        kind=Kind.INTEGER,
        default=384,
        unit="connections",
        least=4,
        most=60_000,
        meaning="connections that one client may have open: an IPv4 address, a /64 of IPv6, or whom a trusted proxy "
        "names",
    ),
    Setting(
        name="head_timeout_s",
        kind=Kind.NUMBER,
        default=15.0,
        unit="seconds",
        least=0.1,
        most=600,
        meaning="how long the head of a request may take to arrive; then 408",
    ),
    Setting(
        name="idle_timeout_s",
        kind=Kind.NUMBER,
        default=30.0,
        unit="seconds",
        least=0.1,
        most=3600,
        meaning="how long a connection may stay open without a request",
    ),
    Setting(
        name="stall_timeout_s",
        kind=Kind.NUMBER,
        default=30.0,
        unit="seconds",
        least=0.1,
        most=600,
        meaning="how long a body may take to arrive, or an answer to be read, beside what its size takes at "
        "LAKEPROOF_RATE_MIN_BYTES_PER_S; then 408, or the connection is cut off",
    ),
    Setting(
        name="rate_min_bytes_per_s",
        kind=Kind.INTEGER,
        default=8192,
        unit="bytes per second",
        least=1,
        most=1024**3,
        meaning="slowest rate at which bodies and answers may move",
    ),
    Setting(
        name="drain_timeout_s",
        kind=Kind.NUMBER,
        default=30.0,
        unit="seconds",
        least=0.1,
        most=600,
        meaning="how long the rest of a refused request is read and thrown away, so that its client sees the answer",
    ),
)
