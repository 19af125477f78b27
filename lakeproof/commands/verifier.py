# SPDX-License-Identifier: Apache-2.0
"""
The command `verifier`: writes the page with which auditors check evidence in their own browsers.
"""

from __future__ import annotations

from hashlib import sha256

import typer

from gateway.console.verifier_page import verifier_page
from gateway.version import installed_version
from lakeproof.commands.exits import Done, failure
from lakeproof.commands.opening import OpenInstallation
from lakeproof.commands.options import AsJson, OutFile


def add_commands(app: typer.Typer, _open_installation: OpenInstallation) -> None:
    """
    Add `verifier`, which opens no installation.
    """

    @app.command()
    def verifier(*, out: OutFile, as_json: AsJson = False) -> None:
        """Write the page that checks evidence in an auditor's own browser; show its SHA-256."""
        version = installed_version()
        page = verifier_page(version)
        digest = sha256(page).hexdigest()
        with failure():
            out.write_bytes(page)
        done = Done(
            f"the verifier of version {version}, {len(page):,} bytes, in {out}\nsha256 {digest}",
            {"file": str(out), "size_bytes": len(page), "sha256": digest, "version": version},
        )
        done.show(as_json=as_json)
