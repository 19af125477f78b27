# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof ledger witness …`: run a witness for logs, ours or others'.

They need a directory of the witness's own and nothing else: no installation, no database. A third party runs a witness
from this distribution alone, on a machine of its own; a witness on the machine of its log would prove nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeproof.commands.exits import failure
from lakeproof.commands.loading import command_group
from lakeproof.commands.options import AsJson, one_of
from lakeproof.console import one_line, show_done, show_json
from ledger.errors import LedgerError
from ledger.format.note import VerifierKey
from ledger.format.signature import ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.opening import OpenInstallation

ALGORITHMS: Final = {"ed25519": ED25519_COSIGNATURE, "ml-dsa-44": ML_DSA_44_COSIGNATURE}

WitnessDirectory = Annotated[Path, typer.Argument(help="The witness's directory.", show_default=False)]


def add_commands(app: typer.Typer, _open_installation: OpenInstallation) -> None:
    """
    Add `witness`, with commands of its own; none of them needs an installation.
    """
    witness = command_group("Run a witness: cosign what logs have signed, if they only grow.")
    app.add_typer(witness, name="witness")

    @witness.command()
    def init(
        directory: WitnessDirectory,
        *,
        name: Annotated[
            str, typer.Option("--name", help="Its name, a URL without scheme: witness.example/w1.", show_default=False)
        ],
        key_type: Annotated[
            list[str] | None,
            typer.Option(
                "--key-type",
                help=f"One of {', '.join(ALGORITHMS)}. May be repeated; both if not given.",
                autocompletion=one_of(ALGORITHMS),
            ),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Make a witness: a new directory with new keys."""
        from ledger.witness.store import create_witness

        with failure():
            create_witness(directory, name=name, algorithms=[_algorithm(kind) for kind in key_type or ALGORITHMS])
            _show(directory, as_json=as_json)

    @witness.command("add-log")
    def add_log(
        directory: WitnessDirectory,
        key: Annotated[str, typer.Argument(metavar="VKEY", help="The log's verifier key.", show_default=False)],
        *,
        origin: Annotated[
            str | None, typer.Option("--origin", help="Its origin, if that is not the key's name.", show_default=False)
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Cosign the checkpoints of a log from now on; a witness that is served takes notice at once."""
        from ledger.files.atomic import RealDisk
        from ledger.witness.store import WitnessStore

        with failure():
            parsed = VerifierKey.parse(key)
            WitnessStore(directory, RealDisk()).add_log(origin or parsed.name, [parsed])
        added = origin or parsed.name
        sentence = f"log {one_line(added)} is cosigned from now on"
        show_done(sentence, {"log": added, "verifier_key": parsed.format()}, as_json=as_json)

    @witness.command()
    def show(directory: WitnessDirectory, *, as_json: AsJson = False) -> None:
        """Show the witness's keys, as lines of a policy, and what it has cosigned last of each log."""
        with failure():
            _show(directory, as_json=as_json)

    @witness.command()
    def serve(
        directory: WitnessDirectory,
        *,
        host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option("--port", help="The port to listen on.", min=1, max=65535)] = 8383,
    ) -> None:
        """Serve the witness over HTTP until SIGINT or SIGTERM; put TLS in front where others are to reach it."""
        from ledger.witness.server import serve as serve_witness
        from ledger.witness.witness import open_witness

        with failure(), open_witness(directory, clock=lambda: int(time.time())) as opened:
            typer.echo(f"witness {opened.verifier_keys[0].name} on http://{host}:{port}/add-checkpoint", err=True)
            serve_witness(opened, host=host, port=port)


def _algorithm(kind: str) -> int:
    if kind not in ALGORITHMS:
        raise LedgerError(f"key type: expected one of {', '.join(ALGORITHMS)}, found {kind}")
    return ALGORITHMS[kind]


def _show(directory: Path, *, as_json: bool) -> None:
    """Print keys and logs; reads only, so a witness that is served can be shown."""
    from ledger.files.atomic import RealDisk
    from ledger.witness.store import WitnessStore, open_cosigners
    from ledger.witness.witness import Witness

    store = WitnessStore(directory, RealDisk())
    witness = Witness(store, open_cosigners(directory), clock=lambda: 0)
    kinds = {algorithm: kind for kind, algorithm in ALGORITHMS.items()}
    if as_json:
        show_json(
            {
                "keys": [
                    {"name": key.name, "type": kinds[key.algorithm], "verifier_key": key.format()}
                    for key in witness.verifier_keys
                ],
                "logs": [
                    {"log": origin, "size": last and last.size, "root": last and last.root.hex()}
                    for origin, last in ((origin, witness.last(origin)) for origin in store.origins())
                ],
            }
        )
        return
    for key in witness.verifier_keys:
        typer.echo(f"witness {key.name}:{kinds[key.algorithm]} {key.format()}")
    for origin in store.origins():
        last = witness.last(origin)
        said = f"size {last.size:,}, root {last.root.hex()}" if last else "nothing cosigned yet"
        typer.echo(f"log {one_line(origin)}: {said}")
