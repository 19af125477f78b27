# SPDX-License-Identifier: Apache-2.0
"""The commands `lakeproof ledger …`: what they print, what they return, and what they do not load."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pytest
from psycopg import AsyncConnection
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import COMMANDS, ledger_app
from lakeproof.provision import Provisioned, create_tenant_log
from ledger.files.directory import LogDirectory
from ledger.format.merkle import prove_inclusion, root_of
from ledger.format.note import Ed25519Signer
from ledger.format.proof import Proof, format_proof
from ledger.format.sequence import SequencedEntry
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log
from testkit.lakeproof.operator import Operator, make_operator
from testkit.ledger.logs import KEY, ORIGIN, TENANT, change, put, rows_of, signed, write_directory

SIZE = 300
VKEY = KEY.format()
STRANGER = Ed25519Signer.from_seed(name=ORIGIN, seed=bytes(32)).verifier_key.format()


class Unopened(Exception):  # noqa: N818 - not an error of ours: any other package's
    """What opens an installation may raise anything."""


def not_opened() -> NoReturn:
    raise Unopened("there is no database\n  here")


APP = ledger_app(not_opened)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def rows() -> list[SequencedEntry]:
    return rows_of(SIZE)


@pytest.fixture
def exported(tmp_path: Path, rows: list[SequencedEntry]) -> Path:
    return write_directory(tmp_path / "exported", rows, parts=True)


@pytest.fixture
def proof(tmp_path: Path, rows: list[SequencedEntry]) -> Path:
    leaves = [row.leaf for row in rows]
    hashes = prove_inclusion(index=17, size=SIZE, read=lambda level, i: root_of(leaves[i << level : (i + 1) << level]))
    note = signed([row.entry for row in rows])
    file = tmp_path / "proof"
    file.write_bytes(format_proof(Proof(extra=rows[17].entry, index=17, hashes=tuple(hashes), checkpoint=note)))
    return file


# Offline


def test_a_verified_directory_is_ok_and_not_witnessed(exported: Path, rows: list[SequencedEntry]) -> None:
    done = run("verify", exported, "--key", VKEY)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert f"log        {ORIGIN}" in lines
    assert "size       300 entries, 300 of them signed" in lines
    assert f"root       {root_of([row.leaf for row in rows]).hex()}" in lines
    assert any(line.startswith("verified   in ") and line.endswith(" entries/s") for line in lines)
    said = "NOT WITNESSED: nobody outside vouches for this root; had database and home both been set back, this would "
    assert lines[-2:] == [f"{said}verify, too", "OK"]


def test_a_verified_directory_as_json(exported: Path) -> None:
    (exported / "README").write_text("?")
    done = run("verify", exported, "--key", VKEY, "--json")
    result = json.loads(done.stdout)
    assert (done.exit_code, result["status"], result["size"]) == (0, "verified", SIZE)
    assert (result["anchored_size"], result["witnessed"], result["unchecked"]) == (None, False, ["README"])
    assert result["entries_per_s"] > 0


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("name", "fault", "index", "where"),
    [
        ("tile/entries/000", "entry", 111, "tile/entries/000"),
        ("tile/0/000", "tile", None, "tile/0/000"),
        ("tile/1/000.p/1", "tile", None, "tile/1/000.p/1"),
    ],
)
def test_a_changed_byte_is_named_and_fails(
    exported: Path, rows: list[SequencedEntry], name: str, fault: str, index: int | None, where: str, as_json: bool
) -> None:
    data = bytearray((exported / name).read_bytes())
    at = sum(2 + len(row.entry) for row in rows[:111]) + 50 if fault == "entry" else 9
    data[at] ^= 1
    (exported / name).write_bytes(data)
    done = run("verify", exported, "--key", VKEY, *(["--json"] if as_json else []))
    assert (done.exit_code, done.stderr) == (1, "")
    if as_json:
        result = json.loads(done.stdout)
        assert (result["status"], result["fault"], result["index"]) == ("broken", fault, index)
        assert result["where"] == where
    else:
        at_index = "" if index is None else f" at index {index}"
        said, verdict = done.stdout.splitlines()
        assert said.startswith(f"{fault} fault{at_index} in {where}: expected ")
        assert verdict == "BROKEN"


def test_without_a_key_nothing_is_verified_even_if_one_lies_there(exported: Path, proof: Path) -> None:
    (exported / "vkey").write_text(VKEY)
    for done in (run("verify", exported), run("check-proof", proof)):
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("lakeproof: KEY NOT PINNED: ")


def test_another_key_of_that_name_does_not_verify(exported: Path, proof: Path) -> None:
    for done in (run("verify", exported, "--key", STRANGER), run("check-proof", proof, "--key", STRANGER)):
        assert done.exit_code == 1
        assert done.stdout.startswith("signature fault")


def test_a_checkpoint_that_was_kept_is_held_against_the_log(
    exported: Path, tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes((exported / "checkpoint").read_bytes())
    assert run("verify", exported, "--key", VKEY, "--checkpoint", kept).exit_code == 0
    end = next(row.index for row in rows[200:] if row.group_id is not None)
    cut = write_directory(tmp_path / "cut", rows[:end])
    assert run("verify", cut, "--key", VKEY).exit_code == 0
    done = run("verify", cut, "--key", VKEY, "--checkpoint", kept)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "BROKEN")
    assert f"index fault at index {end}" in done.stdout


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "nowhere", "--key", VKEY],
        ["verify", ".", "--key", "a+b"],
        ["verify", ".", "--key", VKEY, "--checkpoint", "nowhere"],
        ["verify"],
        ["verify", ".", "--log", "system"],
        ["verify", "--log", "system"],
        ["check-proof", "nowhere", "--key", VKEY],
        ["check-proof", ".", "--key", VKEY],
        ["check-proof", "/dev/zero", "--key", VKEY],
        ["check-proof", "/dev/null", "--key", VKEY],
    ],
    ids=" ".join,
)
def test_what_cannot_be_told_is_neither_verified_nor_broken(
    arguments: list[str], as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, *(["--json"] if as_json else []))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("lakeproof: ")
    assert (json.loads(done.stdout)["status"] if as_json else done.stdout) == ("unknown" if as_json else "")


def test_a_proof_is_checked_and_its_entry_shown(proof: Path, rows: list[SequencedEntry]) -> None:
    done = run("check-proof", proof, "--key", VKEY)
    shown, rest = done.stdout.split("\n}\n")
    assert (done.exit_code, json.loads(shown + "}")) == (0, json.loads(rows[17].entry))
    assert f"entry 17 of log {ORIGIN}" in rest
    assert rest.endswith("\nOK\n")
    result = json.loads(run("check-proof", proof, "--key", VKEY, "--json").stdout)
    assert (result["status"], result["index"], result["size"]) == ("verified", 17, SIZE)
    assert result["entry"] == json.loads(rows[17].entry)


def test_a_changed_proof_fails(proof: Path, rows: list[SequencedEntry]) -> None:
    whole = proof.read_text()
    proof.write_text(whole.replace("index 17", "index 18"))
    assert run("check-proof", proof, "--key", VKEY).exit_code == 1
    proof.write_text(whole.replace("tlog-proof@v1", "tlog-proof@v2"))
    assert run("check-proof", proof, "--key", VKEY).exit_code == 2


def test_an_entry_that_speaks_of_another_place_is_no_proof_of_this_one(
    tmp_path: Path, rows: list[SequencedEntry]
) -> None:
    for entries, fault in (
        ([rows[1].entry], "index"),
        ([rows_of(1, log="a/b")[0].entry], "origin"),
        ([b"{}"], "entry"),
    ):
        file = tmp_path / "proof"
        file.write_bytes(format_proof(Proof(extra=entries[0], index=0, hashes=(), checkpoint=signed(entries))))
        done = run("check-proof", file, "--key", VKEY)
        assert (done.exit_code, done.stdout.startswith(f"{fault} fault")) == (1, True)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_each_command_what_that_says_of_itself(name: str) -> None:
    said = "".join(run(name, "--help").stdout.split())  # lines end anywhere
    assert "".join(COMMANDS[name][1].split()) in said


OFFLINE = """
import sys
for name in ("psycopg", "psycopg_pool", "fastapi", "eventsourcing", "gateway", "projections", "pyarrow"):
    sys.modules[name] = None  # importing it fails
for name in ("installation", "log_names", "postgres.server", "provision", "services"):
    sys.modules[f"lakeproof.{name}"] = None
from lakeproof.commands.ledger import ledger_app
ledger_app(None)()
"""


@pytest.mark.parametrize("command", ["verify", "check-proof"])
def test_offline_commands_load_no_database_driver(exported: Path, proof: Path, command: str) -> None:
    target = exported if command == "verify" else proof
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, command, target, "--key", VKEY], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("OK\n")


def test_an_interrupted_command_ends_with_130_and_no_trace(exported: Path) -> None:
    interrupted = OFFLINE.replace(
        "ledger_app(None)()",
        "import os, signal, ledger.verify.directory as v\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it\n"
        "real = v.leaf_hash\n"
        "v.leaf_hash = lambda entry: os.kill(os.getpid(), signal.SIGINT) or real(entry)\n"
        "ledger_app(None)()",
    )
    done = subprocess.run(
        [sys.executable, "-c", interrupted, "verify", exported, "--key", VKEY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


# On an installation


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCommands:
    """An installation with a signed log, and the way into its operator."""

    operator: Operator
    database: str
    log: Log

    def run(self, *arguments: object) -> Result:
        return self.operator.run(*arguments)

    @property
    def system(self) -> str:
        """The origin of the system log."""
        return self.operator.installation.system_origin

    @property
    def vkey(self) -> str:
        return self.operator.keys.verifier_key(self.log.origin).format()


@pytest.fixture
def commands(database: str, installation: Provisioned, tmp_path: Path) -> LedgerCommands:
    log_id = create_tenant_log(database, installation, TENANT)
    origin = installation.origin(TENANT)
    operator = make_operator(database, installation, tmp_path)

    async def grow() -> Log:
        await put(database, log_id, rows_of(SIZE, log=origin))
        await put(database, 1, rows_of(4, log=installation.system_origin))
        dsn = installation.as_role(installation.roles.signer)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            assert len(await CheckpointSigner(dsn, operator.keys).sign_due(connection)) == 2
            return await find_log(connection, origin)

    return LedgerCommands(operator=operator, database=database, log=asyncio.run(grow()))


def test_a_log_in_the_database_is_verified_with_the_key_of_the_installation_or_another(
    commands: LedgerCommands,
) -> None:
    parts = sum(bool(row.parts) for row in rows_of(SIZE))
    for name in (commands.log.origin, TENANT.hex):
        done = commands.run("verify", "--log", name)
        assert (done.exit_code, done.stderr) == (0, "")
        assert f"checked    1 checkpoints, payload parts of {parts} entries" in done.stdout
        assert f"checked    0 anchors in {commands.system}" in done.stdout
        assert done.stdout.endswith("OK\n")
    assert commands.run("verify", "--log", commands.log.origin, "--key", commands.vkey).exit_code == 0
    assert commands.run("verify", "--log", commands.log.origin, "--key", STRANGER).exit_code == 1
    done = commands.run("verify", "--log", commands.system)
    assert done.exit_code == 0
    assert "NOT CHECKED: payload parts of a log that belongs to no tenant" in done.stdout


def test_whose_keys_were_trusted_is_said(commands: LedgerCommands) -> None:
    own, pinned = (
        commands.run("verify", "--log", commands.log.origin, *more) for more in ([], ["--key", commands.vkey])
    )
    assert "KEY NOT PINNED: trusted were the keys of this installation" in own.stdout
    assert "KEY NOT PINNED" not in pinned.stdout
    for more in ([], ["--key", commands.vkey]):
        done = commands.run("verify", "--log", commands.log.origin, *more, "--json")
        assert json.loads(done.stdout)["key_pinned"] == bool(more)


def test_a_log_of_which_nothing_is_signed_is_not_called_verified(commands: LedgerCommands) -> None:
    tenant = UUID(int=9)
    create_tenant_log(commands.database, commands.operator.installation, tenant)
    assert commands.run("verify", "--log", tenant.hex).exit_code == 0, "there is nothing to sign yet"
    origin = commands.operator.installation.origin(tenant)

    async def grow() -> None:
        async with await AsyncConnection.connect(commands.database, autocommit=True) as connection:
            await put(commands.database, (await find_log(connection, origin)).log_id, rows_of(3, log=origin))

    asyncio.run(grow())
    done = commands.run("verify", "--log", origin)
    assert (done.exit_code, done.stdout.splitlines()[-1][:11]) == (2, "NOT SIGNED:")
    done = commands.run("verify", "--log", origin, "--json")
    assert (done.exit_code, json.loads(done.stdout)["status"]) == (2, "unknown")


def test_a_changed_row_or_part_is_named_and_fails(commands: LedgerCommands) -> None:
    change(commands.database, "UPDATE ledger.parts SET sealed = sealed || 'x' WHERE index = 7")
    done = commands.run("verify", "--log", commands.log.origin, "--json")
    assert (done.exit_code, json.loads(done.stdout)["fault"], json.loads(done.stdout)["index"]) == (1, "part", 7)
    change(commands.database, "UPDATE ledger.entries SET key = 'x' WHERE index = 3")
    done = commands.run("verify", "--log", commands.log.origin)
    assert done.stdout.startswith("derived fault at index 3 in ledger.entries.key: ")


def test_without_a_name_every_log_is_verified_and_the_sum_is_the_last_line(commands: LedgerCommands) -> None:
    done = commands.run("verify")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "OK: 2 logs, all that this installation has")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("log  ")] == [
        commands.system,
        commands.log.origin,
    ]
    change(commands.database, "UPDATE ledger.entries SET key = 'x' WHERE index = 3 AND log_id <> 1")
    done = commands.run("verify")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, f"BROKEN: 1 of 2 logs: {commands.log.origin}")
    told = json.loads(commands.run("verify", "--json").stdout)
    assert (told["status"], [log["status"] for log in told["logs"]]) == ("broken", ["verified", "broken"])
    assert commands.run("verify", "--resume", "somewhere").exit_code == 2, "which log's work would that be?"


def test_an_unknown_log_cannot_be_verified_exported_or_proven(commands: LedgerCommands, tmp_path: Path) -> None:
    assert commands.run("verify", "--log", "nobody").exit_code == 2
    for command in (
        ["export", "nobody", tmp_path / "out"],
        ["prove", "nobody", 1, "--out", tmp_path / "out"],
        ["key", "nobody"],
    ):
        done = commands.run(*command)
        assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), command
    assert not (tmp_path / "out").exists()


def test_an_export_says_how_it_is_verified(commands: LedgerCommands, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = commands.run("export", commands.log.origin, out)
    assert (done.exit_code, done.stderr) == (0, "")
    first, command = done.stdout.splitlines()
    assert first == f"300 entries of {commands.log.origin} in {out}"
    assert run(*command.split()[2:]).exit_code == 0
    assert not [name for name in LogDirectory(out).files() if name.startswith("parts/")]
    done = commands.run("export", commands.log.origin, out, "--parts", "--key", commands.vkey)
    assert (
        done.stdout.splitlines()[-1]
        == f"disclosed: payload parts of {sum(bool(r.parts) for r in rows_of(SIZE))} entries"
    )
    assert json.loads(run("verify", out, "--key", commands.vkey, "--json").stdout)["parts"] > 0
    assert commands.run("export", commands.system, tmp_path / "system", "--parts").exit_code == 1
    assert commands.run("export", commands.system, out).exit_code == 1
    assert commands.run("export", commands.log.origin, tmp_path / "other", "--key", STRANGER).exit_code == 1


def test_a_proof_says_how_it_is_checked(commands: LedgerCommands, tmp_path: Path) -> None:
    out = tmp_path / "proof"
    done = commands.run("prove", commands.log.origin, 17, "--out", out)
    assert (done.exit_code, done.stderr) == (0, "")
    assert run(*done.stdout.splitlines()[-1].split()[2:]).exit_code == 0
    assert commands.run("prove", commands.log.origin, SIZE, "--out", out).exit_code == 1
    assert commands.run("prove", commands.log.origin, -1, "--out", out).exit_code == 2
    assert commands.run("prove", commands.log.origin, 1, "--out", tmp_path / "no" / "where").exit_code == 1


def test_the_key_is_shown_to_be_handed_on(commands: LedgerCommands) -> None:
    assert commands.run("key", TENANT.hex).stdout == commands.vkey + "\n"


def test_what_others_have_written_cannot_move_the_cursor(exported: Path, tmp_path: Path) -> None:
    (exported / "\x1b[2A\x9bOK\n\u202e").write_bytes(b"")
    done = run("verify", exported, "--key", VKEY)
    assert "NOT CHECKED: \\u001b[2A\\u009bOK \\u202e\n" in done.stdout
    entry = rows_of(1)[0].entry.replace(b"plain", "\x9b2A\u202e漢".encode())
    (tmp_path / "proof").write_bytes(format_proof(Proof(extra=entry, index=0, hashes=(), checkpoint=signed([entry]))))
    done = run("check-proof", tmp_path / "proof", "--key", VKEY)
    assert "\\u009b2A\\u202e漢" in done.stdout
    shown = run("check-proof", tmp_path / "proof", "--key", VKEY, "--json").stdout
    assert json.loads(shown)["entry"] == json.loads(entry)
