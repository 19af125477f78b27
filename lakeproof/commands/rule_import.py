# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof access-rules import`: the rules of a file of Nessie's or of Cedar, all of them or none.

What cannot be imported is shown with its place in the file, and with mended lines to copy where there are some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.rule_import import ImportedRules
from gateway.policy.cedar.files import parse_cedar_file
from gateway.policy.rule_files import FILE_BYTES_MAX, RuleFileRefusedError, parse_rule_file
from lakeproof import console
from lakeproof.commands.opening import OpenServices, run_with_services
from lakeproof.commands.options import AsJson, OneTenant, read_bounded
from lakeproof.errors import LakeproofError
from lakeproof.services import Services
from lakeproof.tenants import find_tenant_log

CEDAR_SUFFIX: Final = ".cedar"
_HELP: Final = f"Properties of Nessie's with its rules, or (*{CEDAR_SUFFIX}) policies in Cedar."


def import_command(open_services: OpenServices) -> Callable[..., None]:
    """
    Return the command, working with the services that `open_services` opens.
    """

    def import_(
        file: Annotated[Path, typer.Argument(help=_HELP, show_default=False)],
        *,
        tenant: OneTenant,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Put the rules of a file of Nessie's, or of policies in Cedar, in force, all of them or none."""
        parse = parse_cedar_file if file.suffix == CEDAR_SUFFIX else parse_rule_file
        rules = parse(_text_of(file))

        async def work(services: Services) -> ImportedRules:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.import_access_rules(log_id, OPERATOR, rules, is_trial=dry_run)

        try:
            imported = run_with_services(open_services, work)
        except RuleFileRefusedError as error:
            _show_refused(file, error, as_json=as_json)
            message = f"{len(error.refused)} rules of {file} cannot be imported, so none was: mend the file as above"
            raise LakeproofError(message) from error
        done = "would be" if dry_run else "are now"
        sentence = (
            f"tenant {tenant}: {len(imported.created)} access rules of {file} {done} in force, "
            f"{len(imported.unchanged)} were before"
        )
        console.show_done(sentence, {**imported.shown(), "dry_run": dry_run}, as_json=as_json)

    return import_


def _show_refused(file: Path, error: RuleFileRefusedError, *, as_json: bool) -> None:
    for refused in error.refused:
        console.explain(console.printable(f"{file}: {refused}"))
    if as_json:
        console.show_json({"created": [], "unchanged": [], "refused": [asdict(one) for one in error.refused]})


def _text_of(file: Path) -> str:
    """
    Return the text of a rule file, which is UTF-8.

    Raises:
        LakeproofError: if it is no text.
    """
    content = read_bounded(file, size_bytes_max=FILE_BYTES_MAX)
    if len(content) > FILE_BYTES_MAX:  # cut off, perhaps within a character; it is refused for its size
        return content.decode(errors="replace")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LakeproofError(f"{file}, line {line}: expected text in UTF-8, found a byte that is none") from error
