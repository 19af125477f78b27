# SPDX-License-Identifier: Apache-2.0
"""
The foreign catalog of the scene: a gateway of another installation, with its warehouse on S3.

Run as `python -m lakeproof.demo.upstream`; prints its URL, its tenant, and the key that the scene's catalog uses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Final

from lakeproof.demo.helper_process import end_with_input, say_ready
from lakeproof.installation import open_installation
from lakeproof.services import open_services
from lakeproof.serving.in_process import serving
from lakeproof.settings import load_settings
from lakeproof.tenants import found_tenant

ALIAS: Final = "vault"


async def main() -> None:
    """Serve until standard input ends."""
    settings = load_settings(os.environ, directory=Path.cwd())
    with open_installation(settings, lambda _: None) as installation:
        async with open_services(installation) as services, serving(services) as served:
            founded = await found_tenant(services, name="upstream", identity="lakeproof@example.com", alias=ALIAS)
            end_with_input(served.stop.set)
            say_ready(url=served.url, tenant=founded.tenant.hex, key=founded.key.secret)
            await served.stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(main())
