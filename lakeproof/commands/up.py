# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof up` and `demo`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Final

import typer

from lakeproof import console
from lakeproof.commands.opening import home_settings
from lakeproof.setting_kinds import LogFormat, LogLevel

SUPERVISOR: Final = "supervisor"
"""What the log calls the process that starts the others."""
PRIVATE_UMASK: Final = 0o077
"""What a process that serves writes, and what it starts, is for this user alone."""


def add_commands(app: typer.Typer) -> None:
    """
    Add `up` and `demo`.
    """

    @app.command()
    def up() -> None:
        """Serve everything until Ctrl-C: PostgreSQL, gateway, projections, streams, detection, signer."""
        settings = home_settings()
        os.umask(PRIVATE_UMASK)
        console.log_from(settings.log_level)
        if settings.log_format is LogFormat.JSON:
            console.log_as_json(process=SUPERVISOR)
        from lakeproof.serving.up import run_up

        run_up(settings, console.say_as(settings.log_format, process=SUPERVISOR))

    @app.command()
    def demo(
        *, once: Annotated[bool, typer.Option("--once", help="End after the scene: with 1 if a step failed.")] = False
    ) -> None:
        """Play one scene with real parts, and keep serving."""
        settings = home_settings()
        os.umask(PRIVATE_UMASK)
        # What is logged at the usual level would stand between the lines of the scene.
        console.log_from(LogLevel.WARNING if settings.log_level is LogLevel.INFO else settings.log_level)
        from lakeproof.demo.scene import run_demo

        raise typer.Exit(asyncio.run(run_demo(settings, console.say, once=once)))
