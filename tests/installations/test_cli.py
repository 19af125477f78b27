# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof` as people run it: a process of its own each time, its exit code, and what stands on the screen.

Most are forked from a process that has imported everything. What is about imports, crashes, signals or serving starts
an interpreter.

One home for the module; its server runs throughout, so that most commands attach to it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest

from gateway.errors import NotFoundError
from lakeproof import cli
from lakeproof.anchor_settings import NOT_PUBLISHED
from lakeproof.crash import SIZE_BYTES_MAX, CrashFile
from lakeproof.errors import ServerError
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.settings import SETTINGS, load_settings
from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.event import Event, prepare
from ledger.format.merkle import leaf_hash, node_hash
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.proof import Proof, format_proof
from ledger.format.sequence import Group, LogHead, sequence
from projections.errors import NotProjectedError
from testkit.environment import PROJECT
from testkit.lakeproof.data_folders import make_data_folder
from testkit.servers.commands import forked_commands

TIMEOUT_S = 60
PROGRAM = (sys.executable, "-m", "lakeproof")
HEAVY = frozenset({"psycopg", "psycopg_pool", "fastapi", "pyiceberg", "pyarrow", "celpy", "uvicorn", "eventsourcing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Runs the command in a directory, with a home."""

    directory: Path
    environment: Mapping[str, str]
    forked: Path
    """The command, forked from a process that has imported everything (`testkit.servers.commands`)."""

    def start(self, *arguments: str, program: tuple[str | Path, ...] = PROGRAM, **more: str) -> subprocess.Popen[str]:
        """Start the command in an interpreter of its own, or another program; `more` are variables."""
        return subprocess.Popen(
            [*program, *arguments],
            cwd=self.directory,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *arguments: str, program: tuple[str, ...] | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the forked command, or another program, to its end."""
        process = self.start(*arguments, program=program or (self.forked,), **more)
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def refusal(self, *arguments: str, code: int = 1, **more: str) -> str:
        """Run a command that must fail; return its one sentence."""
        ended = self.run(*arguments, program=None, **more)
        assert ended.returncode == code, ended
        assert re.fullmatch(r"lakeproof: [^\n]+\n", ended.stderr), ended.stderr
        return ended.stderr.strip()


def shell_in(directory: Path, home: Path, programs: Path) -> Shell:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
    cache = load_settings(os.environ, directory=PROJECT).cache
    ours = {
        "LAKEPROOF_HOME": str(home),
        "LAKEPROOF_CACHE": str(cache),
        "LAKEPROOF_PORT": "0",
        "LAKEPROOF_CHECKPOINT_INTERVAL_S": "0.05",
    }
    environment = {**kept, **ours, "PYTHONPATH": str(PROJECT)}
    return Shell(directory=directory, environment=environment, forked=programs / "lakeproof")


@pytest.fixture(scope="module")
def programs(short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    """A directory with the forked command."""
    with short_directory() as directory, forked_commands(directory) as programs:
        yield programs


@pytest.fixture
def shell(tmp_path: Path, programs: Path) -> Shell:
    """A shell whose home does not exist yet."""
    return shell_in(tmp_path, tmp_path / "home", programs)


@pytest.fixture(scope="module")
def installed(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]], programs: Path
) -> Iterator[Shell]:
    """A shell whose home has a server that runs."""
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        server.start(print)
        try:
            yield shell_in(directory, directory / "home", programs)
        finally:
            server.stop()


# Which packages are loaded


def modules_after(shell: Shell, *arguments: str) -> tuple[int, set[str]]:
    """Run a command; return its exit code and the top-level modules it has loaded, and our own in full."""
    script = (
        "import sys, json\nfrom lakeproof.cli import run\ncode = run(sys.argv[1:])\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    ended = shell.run(*arguments, program=(sys.executable, "-c", script))
    code, modules = json.loads(ended.stderr.splitlines()[-1])
    return code, {name.partition(".")[0] for name in modules} | set(modules)


def test_help_lists_every_command_and_imports_no_package(shell: Shell) -> None:
    code, modules = modules_after(shell, "--help")
    assert code == 0
    assert not modules & {*HEAVY, "ledger", "projections", "gateway", "lakeproof.services", "cryptography"}
    shown = shell.run("--help").stdout
    for command in ("up", "demo", *cli.SINGLE, *cli.GROUPS):
        assert re.search(rf"^  {command} +[A-Z].*\.$", shown, re.MULTILINE), command


def entries_of(origin: str, count: int) -> list[bytes]:
    """Return the entries of a small log."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    event = Event(type="scan.requested", version=1, key="table:a/b", actor="system", occurred_at=noon, data={})
    groups = [Group(id=UUID(int=(1 << 127) + number, version=4), then=(prepare(event),)) for number in range(count)]
    sequencing = sequence(LogHead.empty(), groups, log=origin, stored={}, clock=noon)
    with pytest.raises(StopIteration) as ended:
        next(sequencing)
    return [row.entry for row in ended.value.value.rows]


def test_checking_a_proof_needs_no_database_and_no_web(shell: Shell) -> None:
    origin = "logs.example.org/one"
    signer = Ed25519Signer.from_seed(name=origin, seed=bytes(32))
    entries = entries_of(origin, 2)
    first, second = map(leaf_hash, entries)
    root = Checkpoint(origin=origin, size=2, root=node_hash(first, second))
    proof = Proof(extra=entries[1], index=1, hashes=(first,), checkpoint=sign_note(format_checkpoint(root), [signer]))
    file = shell.directory / "second.tlog-proof"
    check = ("ledger", "check-proof", str(file), "--key", signer.verifier_key.format())
    file.write_bytes(format_proof(proof))
    code, modules = modules_after(shell, *check)
    assert code == 0
    assert "ledger.format.proof" in modules
    assert not modules & {*HEAVY, "gateway", "projections", "lakeproof.installation", "lakeproof.services"}
    file.write_bytes(format_proof(replace(proof, hashes=(second,))))
    assert modules_after(shell, *check)[0] == 1
    assert not (shell.directory / "home").exists()


def test_a_log_that_cannot_be_reached_is_not_a_broken_log(shell: Shell) -> None:
    key = Ed25519Signer.from_seed(name="logs.example.org/one", seed=bytes(32)).verifier_key.format()
    shell.refusal("ledger", "verify", "--log", "acme", "--key", key, LAKEPROOF_DSN="host=/nonexistent", code=2)
    shell.refusal("ledger", "verify", "--log", "acme", "--key", key, LAKEPROOF_DSM="host=/nonexistent", code=2)


# How it is called


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Commands:"),
        (("polices",), "Did you mean 'policies'?"),
        (("--speed",), "No such option"),
        (("up", "now"), "unexpected extra argument"),
        (("projections", "rebuild"), "Missing argument"),
        (("keys", "create", "--tenant", "acme"), "Missing option '--identity'"),
    ],
)
def test_a_command_that_is_called_wrongly_ends_with_2(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    ended = shell.run(*arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (shell.directory / "home").exists()


def test_the_version_and_the_settings_are_shown(shell: Shell) -> None:
    assert shell.run("--version", program=PROGRAM).stdout.startswith("lakeproof")
    shown = shell.run("config", "list")
    assert shown.returncode == 0
    for setting in SETTINGS:
        assert f"| `{setting.variable}` |" in shown.stdout


# Errors, for people


def test_a_file_of_settings_that_is_none_is_named(shell: Shell) -> None:
    (shell.directory / "lakeproof.toml").write_text("port = \n")
    assert "lakeproof.toml" in shell.refusal("up")
    assert "lakeproof.toml" in shell.refusal("tenants", "list")


def test_a_variable_that_is_no_setting_is_named(shell: Shell) -> None:
    assert "the nearest is LAKEPROOF_PORT" in shell.refusal("projections", "status", LAKEPROOF_PROT="1")


def test_data_of_another_version_is_left_alone(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]], programs: Path
) -> None:
    with short_directory() as directory:
        data = make_data_folder(directory)
        (data / "PG_VERSION").write_text("16\n")
        sentence = shell_in(directory, directory / "home", programs).refusal("up")
        assert "made by PostgreSQL 16" in sentence
        assert "choose another LAKEPROOF_HOME" in sentence


def test_a_database_that_is_not_there_is_one_sentence(shell: Shell) -> None:
    assert "LAKEPROOF_DSN" in shell.refusal("tenants", "list", LAKEPROOF_DSN="host=/nonexistent dbname=nowhere")


def test_a_port_in_use_is_one_sentence(installed: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        sentence = installed.refusal("up", LAKEPROOF_PORT=port)
    assert f"cannot listen on 127.0.0.1 port {port}" in sentence
    assert "set LAKEPROOF_PORT" in sentence


def test_a_port_in_use_is_found_before_a_cluster_is_made(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in ("up", "demo"):
            assert f"cannot listen on 127.0.0.1 port {port}" in shell.refusal(command, LAKEPROOF_PORT=port)
    assert not (shell.directory / "home").exists()


@pytest.mark.parametrize(
    "command",
    ["tenants list", "keys list --tenant acme", "projections status", "ledger export acme out", "streams status"],
)
def test_a_command_that_finds_no_installation_says_so_and_leaves_none_behind(shell: Shell, command: str) -> None:
    sentence = shell.refusal(*command.split())
    assert f"there is no installation in {shell.directory / 'home'}" in sentence
    assert "`lakeproof up`" in sentence
    assert list(shell.directory.iterdir()) == []


@pytest.mark.parametrize("wrong", [("--catalog", "No/Alias"), ("--role", "no role")])
def test_a_tenant_that_cannot_be_founded_leaves_no_installation_behind(shell: Shell, wrong: tuple[str, str]) -> None:
    shell.refusal("tenants", "create", "acme", "--identity", "ada", *wrong)
    assert list(shell.directory.iterdir()) == []


def test_detection_without_java_is_refused_before_anything_is_done(shell: Shell) -> None:
    ended = shell.run("detect", "run", LAKEPROOF_JAVA_HOME=str(shell.directory))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "expected the home of a Java 17, found no Java" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(shell.directory.iterdir()) == []


def test_a_home_that_is_a_file_is_one_sentence(shell: Shell) -> None:
    (shell.directory / "home").write_text("")
    assert str(shell.directory / "home") in shell.refusal("tenants", "list")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ServerError("the server\nis gone: start it"), "the server is gone: start it"),
        (NotFoundError("no tenant", kind="NotFoundException"), "no tenant"),
        (NotProjectedError("no runner yet"), "no runner yet"),
        (
            BrokenError(Fault.CHAIN, where="log", expected="a", found="b", index=7),
            "chain fault at index 7 in log: expected a, found b",
        ),
        (
            psycopg.OperationalError("connection refused\nIs it running?"),
            "the database cannot be reached (connection refused Is it running?): check that it runs, then try again",
        ),
        (ExceptionGroup("tasks", [ExceptionGroup("task", [ServerError("one")]), ValueError("two")]), "one"),
    ],
)
def test_what_is_raised_on_purpose_is_one_sentence(
    error: Exception, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crash_file = CrashFile(lambda: tmp_path, began=datetime(2026, 3, 1, tzinfo=UTC), pid=1)
    assert cli.explain_error(error, crash_file) == 1
    assert capsys.readouterr() == ("", f"lakeproof: {sentence}\n")
    assert list(tmp_path.iterdir()) == []


BROKEN_COMMAND = """
import sys
from lakeproof import cli
@cli.app.command()
def break_down() -> None:
    raise RuntimeError("it broke\\nbadly")
sys.exit(cli.run(sys.argv[1:]))
"""


def test_what_nobody_expected_is_one_sentence_and_a_private_file(shell: Shell) -> None:
    (shell.directory / "home").mkdir()
    ended = shell.run("break-down", program=(sys.executable, "-c", BROKEN_COMMAND))
    assert ended.returncode == 70
    sentence = re.fullmatch(
        r"lakeproof: an error that should not be, RuntimeError: it broke badly \(details in ([^\n]+)\)\n", ended.stderr
    )
    assert sentence is not None, ended.stderr
    file = Path(sentence[1])
    assert file.parent == shell.directory / "home" / "log"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "RuntimeError: it broke\nbadly" in file.read_text()
    assert "Traceback" in file.read_text()


def test_a_command_that_breaks_down_without_a_home_makes_none(shell: Shell) -> None:
    ended = shell.run("break-down", program=(sys.executable, "-c", BROKEN_COMMAND), TMPDIR=str(shell.directory))
    assert f"(details in {shell.directory}/lakeproof-" in ended.stderr
    assert not (shell.directory / "home").exists()


LOGGING_COMMAND = """
import logging, sys
from lakeproof import cli
@cli.app.command()
def log() -> None:
    logging.getLogger("gateway.app").info("never shown")
    try:
        raise RuntimeError("it broke\\nbadly")
    except RuntimeError as error:
        logging.getLogger("gateway.app").error("GET /x failed", exc_info=error)
    logging.getLogger("strangers").warning("two\\nlines")
sys.exit(cli.run(sys.argv[1:]))
"""


def test_what_is_logged_is_one_line_each_and_its_stack_goes_to_the_file(shell: Shell) -> None:
    (shell.directory / "home").mkdir()
    ended = shell.run("log", program=(sys.executable, "-c", LOGGING_COMMAND))
    assert ended.returncode == 0
    first, second = ended.stderr.splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"{time} WARNING strangers: two lines", second)
    logged = re.fullmatch(
        rf"{time} ERROR gateway.app: GET /x failed \(RuntimeError: it broke badly; details in (\S+)\)", first
    )
    assert logged is not None, first
    assert "Traceback" in Path(logged[1]).read_text()


def test_a_crash_file_ends_at_its_bound(tmp_path: Path) -> None:
    file = CrashFile(lambda: tmp_path, began=datetime(2026, 3, 1, tzinfo=UTC), pid=1)
    for _ in range(3):
        file.add(ValueError("x" * (SIZE_BYTES_MAX // 2)))
    [path] = (tmp_path / "log").iterdir()
    assert path.stat().st_size < 1.5 * SIZE_BYTES_MAX
    assert file.add(ValueError("one more")) == str(path)


def test_a_crash_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("in the way")
    file = CrashFile(lambda: tmp_path, began=datetime(2026, 3, 1, tzinfo=UTC), pid=1)
    assert file.add(ValueError("lost")) == "no file, since none could be written (File exists)"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_told_to_end_ends_at_once_and_says_nothing(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        port = silent.getsockname()[1]
        process = shell.start("tenants", "list", LAKEPROOF_DSN=f"host=127.0.0.1 port={port} dbname=nowhere")
        connection, _ = silent.accept()  # it waits for an answer that never comes
        with connection:
            process.send_signal(number)
            assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    assert process.returncode == code


# The whole


@contextmanager
def serving(shell: Shell) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `lakeproof up` and yield it with its address."""
    process = shell.start("up", LAKEPROOF_DETECT="0")  # no virtual machine is needed for what is looked at here
    assert process.stdout is not None
    suggested = False
    try:
        for line in process.stdout:
            suggested |= line == f"{NOT_PUBLISHED}\n"
            if found := re.match(r"the gateway listens on (\S+);", line):
                assert suggested, "a start without anybody outside says so"
                yield process, found[1]
                return
        raise AssertionError(process.communicate())
    finally:
        process.kill()
        process.communicate()


def test_operators_commands_work_beside_a_server_that_runs(installed: Shell) -> None:
    with serving(installed) as (process, url):
        added = installed.run("tenants", "create", "acme", "--identity", "ada", "--catalog", "lake", "--json")
        assert added.returncode == 0, added.stderr
        tenant = json.loads(added.stdout)
        policy = ("policies", "create", "--tenant", "acme", "--id", "p", "--message", "no", "--expression")
        refused = installed.run(*policy, "tabel.exists")
        assert refused.returncode == 1
        assert refused.stderr.startswith(
            "    tabel.exists\n    ^\nlakeproof: line 1, column 1: unknown variable 'tabel'"
        )
        assert refused.stderr.count("\n") == 3
        added = installed.run(*policy, "true")
        assert (added.returncode, added.stderr) == (0, "")
        key = json.loads(installed.run("keys", "create", "--tenant", "acme", "--identity", "bob", "--json").stdout)
        with httpx.Client(base_url=url, params={"warehouse": "lake"}) as engine:
            # To Bob no rule permits anything: his key is known, the catalog is none to him.
            for secret, status in ((tenant["key"]["secret"], 200), (key["secret"], 404), ("lp_" + "a" * 56, 401)):
                assert engine.get("/v1/config", headers={"Authorization": f"Bearer {secret}"}).status_code == status
        rebuilt = installed.run("projections", "rebuild", "graph", "--tenant", "acme")
        assert rebuilt.returncode == 0, rebuilt.stderr
        assert "generation 1 -> 2" in rebuilt.stdout
        assert rebuilt.stderr == ""
        for name in ("acme", tenant["tenant"], tenant["log"], "system"):
            assert installed.run("ledger", "verify", "--log", name).returncode == 0, name
        assert "a tenant's name or id" in installed.refusal("ledger", "key", "acne")
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, stdout) == (0, "stopping\n")
        assert "Traceback" not in stderr
