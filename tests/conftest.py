# SPDX-License-Identifier: Apache-2.0
"""
Real PostgreSQL for every test: one embedded server a session, one database a test, cloned from a template.

A missing server fails in CI and skips elsewhere, with its reason.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Final

import psycopg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakeproof.errors import LakeproofError
from lakeproof.postgres.age import fetch_age
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from lakeproof.serving.event_loop import new_event_loop
from lakeproof.settings import load_settings
from testkit.databases import (
    CLONE,
    OID,
    TEMPLATE,
    confirm_logs,
    confirm_logs_of_clones,
    dropping_readers,
    provision_template,
)
from testkit.environment import PROJECT, SHARED_DATA, missing
from testkit.forked_tests import add_processes, pytest_runtestloop
from testkit.gateway.console.browser_report import (
    add_console_report,
    pytest_runtest_logreport,
    pytest_terminal_summary,
)
from testkit.gateway.fixtures import module_app, module_gateway, module_sales, module_url, sales, shared_gateway
from testkit.prepared_once import prepare_once
from testkit.servers.cloud import start_cloud
from testkit.servers.gateways import Gateway, open_gateway, start_services
from testkit.servers.policy_engine import close_shared_engine

# No test goes by the clock: on a busy machine drawing examples takes as long as it takes.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

prepare_once()

MEMORY, DISK = Path("/dev/shm"), Path("/tmp")  # noqa: S108 - private directories are made in them
MEMORY_BYTES_MIN = 4 * 1024**3
LONGEST: Final = (
    "tests/engines/test_scene.py",
    "tests/engines/test_spark.py",
    "tests/engines/test_spark_nessie.py",
    "tests/engines/test_crash_campaign.py",
    "tests/engines/test_java_kit.py",
    "tests/engines/test_detection_in_spark.py",
    "tests/upstreams/test_kafka.py",
    "tests/installations/test_processes.py",
    "tests/installations/test_hostile_names.py",
    "tests/engines/test_pyiceberg_own_tests.py",
    "tests/installations/test_readme.py",
    "tests/installations/test_crash.py",
    "tests/installations/test_cli.py",
    "tests/system/test_every_route.py",
    "tests/lakeproof/deep_verification/test_checks.py",
    "tests/gateway/http/test_schemathesis.py",
    "tests/ledger/verify/test_tampering.py",
    "tests/lakeproof/commands/test_gateway_cli.py",
    "tests/gateway/asking/test_rule_lint.py",
    "tests/gateway/http/test_looking_as_of.py",
    "tests/gateway/http/test_tls.py",
    "tests/gateway/commit/test_lineage.py",
    "tests/gateway/http/test_graphql.py",
    "tests/streams/metadata/test_reader.py",
    "tests/streams/handlers/test_observe.py",
    "tests/gateway/console/test_policy_pages.py",
    "tests/gateway/console/test_pages.py",
    "tests/gateway/http/test_looking_by_index.py",
    "tests/ledger/append/test_append_faults.py",
    "tests/ledger/test_faults.py",
    "tests/ledger/append/test_append_processes.py",
    "tests/ledger/append/test_append_stress.py",
    "tests/projections/processing/test_rebuilt_equals_live.py",
    "tests/lakeproof/serving/test_up.py",
    "tests/browsers/test_in_two_browsers.py",
)
"""Files that take long: begun first, they do not end last while other processes have nothing to do."""
ON_LOOP_OF_UP: Final = (
    "tests/browsers/",
    "tests/engines/",
    "tests/gateway/",
    "tests/lakeproof/serving/",
    "tests/ledger/append/",
    "tests/ledger/signing/",
    "tests/ledger/store/",
    "tests/projections/processing/",
    "tests/streams/metadata/",
    "tests/upstreams/",
)
"""Folders whose code has connections, pipes or watched descriptors, in which event loops differ."""

COLLECTIONS: Final = (20_000, 20, 50)
"""Objects more than before, of each process of tests, at which their garbage is collected; see `gc.set_threshold`."""

__all__ = [
    "module_app",
    "module_gateway",
    "module_sales",
    "module_url",
    "pytest_runtest_logreport",  # hooks
    "pytest_runtestloop",
    "pytest_terminal_summary",
    "sales",
    "shared_gateway",
]

_numbers = count()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of test vectors that others have made."""
    if not SHARED_DATA.is_dir():
        missing(f"the test vectors of {SHARED_DATA} are not here")
    return SHARED_DATA


@pytest.fixture(scope="session")
def age() -> Path:
    """Apache AGE, unpacked in the cache that a start uses too."""
    try:
        return fetch_age(load_settings(os.environ, directory=PROJECT).cache, print)
    except LakeproofError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def postgres_server(age: Path) -> Iterator[EmbeddedServer]:
    """One embedded server for the session; it ends with the session, even if that is killed."""
    with _short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        try:
            server.start(print)
        except LakeproofError as error:
            missing(str(error))
        reaper = _reaper(server, directory)
        try:
            _connect_quickly(server)
            yield server
        finally:
            server.stop()
            reaper.kill()
            reaper.communicate()


def _connect_quickly(server: EmbeddedServer) -> None:
    """Have this server's passwords cost a client little: half of a connection is 4,096 rounds of HMAC (SCRAM)."""
    password = conninfo_to_dict(server.admin_dsn)["password"]
    for statement in ("ALTER ROLE CURRENT_USER SET scram_iterations = 1", "ALTER ROLE CURRENT_USER PASSWORD {}"):
        with psycopg.connect(server.admin_dsn, autocommit=True) as owner:
            owner.execute(sql.SQL(statement).format(sql.Literal(password)))


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The URL of a server of S3, SNS and SQS; each test has a bucket and a queue of its own (`fresh_cloud`)."""
    with start_cloud() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def admin_dsn(postgres_server: EmbeddedServer) -> str:
    """The owner's connection string, to the database `postgres`."""
    return postgres_server.admin_dsn


@pytest.fixture(scope="session")
def template_installation(admin_dsn: str) -> Provisioned:
    """The installation in the database that every test's own is a clone of; nobody is connected to it."""
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    dsn = make_conninfo(admin_dsn, dbname=TEMPLATE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION age")
    installation = provision_template(dsn)
    confirm_logs_of_clones(dsn)
    return installation


@pytest.fixture(scope="session")
def template_database(template_installation: Provisioned) -> str:
    """The name of that database."""
    return str(conninfo_to_dict(template_installation.dsn)["dbname"])


@pytest.fixture(scope="session")
def _admin(admin_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def database(_admin: psycopg.Connection, admin_dsn: str, template_database: str) -> Iterator[str]:
    """The owner's connection string to a database of this test's own, dropped afterwards whoever is connected."""
    name = f"test_{next(_numbers)}"
    identifiers = (sql.Identifier(name), sql.Identifier(template_database))
    with dropping_readers(_admin):
        _admin.execute(sql.SQL("{} OID {}").format(CLONE.format(*identifiers), OID))
        yield make_conninfo(admin_dsn, dbname=name)
        _admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifiers[0]))


@pytest.fixture
def installation(_admin: psycopg.Connection, database: str, template_installation: Provisioned) -> Provisioned:
    """The installation in `database`."""
    return _installation_in(database, template_installation, _admin)


def _installation_in(database: str, template: Provisioned, admin: psycopg.Connection) -> Provisioned:
    """Return the installation in a clone, with the rights on a database, which a clone does not take along."""
    name, roles = str(conninfo_to_dict(database)["dbname"]), template.roles
    granted = map(sql.Identifier, (name, roles.owner, roles.projector))
    admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}, {}").format(*granted))
    admin.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
    return replace(template, dsn=make_conninfo(template.dsn, dbname=name))


@pytest.fixture(scope="session")
def short_directory() -> Callable[[], AbstractContextManager[Path]]:
    """Makes temporary directories with short paths that any user may enter, for servers of a test's own."""
    return _short_directory


@contextmanager
def _short_directory() -> Iterator[Path]:
    """
    A temporary directory with a short path that any user may enter.

    pytest's own are 0700: as root, a server's files would go elsewhere. What a server of a home below it has put
    elsewhere (see `lakeproof.postgres.directories`) is removed as well.
    """
    directory = Path(tempfile.mkdtemp(prefix="lp-", dir=_fast_directory()))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        for record in directory.rglob("server.json"):
            for elsewhere in json.loads(record.read_bytes()).values():
                shutil.rmtree(elsewhere, ignore_errors=True)
        shutil.rmtree(directory)


def _fast_directory() -> Path:
    """Return a file system in memory, where a clone takes 12 ms instead of up to 200, if there is one that will do."""
    if not MEMORY.is_dir():
        return DISK
    found = os.statvfs(MEMORY)
    fits = found.f_bavail * found.f_frsize > MEMORY_BYTES_MIN and not found.f_flag & os.ST_NOEXEC
    return MEMORY if fits else DISK


def _reaper(server: EmbeddedServer, directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that stops the server when this one is gone: it waits for the end of a pipe that we hold."""
    pid = str(postmaster_pid(server.files.data))
    script = 'cat; kill -QUIT "$1"; while kill -0 "$1"; do sleep 0.1; done 2>/dev/null; rm -rf "$2"'
    arguments = ["sh", "-c", script, "reaper", pid, str(directory)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


@pytest_asyncio.fixture
async def services(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Services]:
    """The services of one process on this test's database."""
    async with start_services(database, installation, tmp_path) as services:
        yield services


@pytest_asyncio.fixture
async def gateway(services: Services) -> AsyncIterator[Gateway]:
    """A gateway with one tenant."""
    async with open_gateway(services) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def module_database(
    request: pytest.FixtureRequest, _admin: psycopg.Connection, admin_dsn: str, template_database: str
) -> Iterator[str]:
    """The owner's connection string to a database that the tests of one module share."""
    name = f"module_{request.module.__name__.rpartition('.')[2]}"
    with dropping_readers(_admin):
        _admin.execute(CLONE.format(*map(sql.Identifier, (name, template_database))))
        dsn = make_conninfo(admin_dsn, dbname=name)
        confirm_logs(dsn)
        yield dsn
        _admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def module_installation(
    _admin: psycopg.Connection, module_database: str, template_installation: Provisioned
) -> Provisioned:
    """The installation in `module_database`."""
    return _installation_in(module_database, template_installation, _admin)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_services(
    module_database: str, module_installation: Provisioned, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Services]:
    """The services of one process that the tests of one module share."""
    async with start_services(module_database, module_installation, tmp_path_factory.mktemp("shared")) as services:
        yield services


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what chooses the event loop of asynchronous tests, the number of processes, and a file for a report."""
    parser.addoption("--asyncio-loop", action="store_true", help="run every test on asyncio's own event loop")
    add_processes(parser)
    add_console_report(parser)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of `ON_LOOP_OF_UP` on the event loop of `lakeproof up`, unless asyncio's own is asked for."""
    is_on_it = item.nodeid.startswith(ON_LOOP_OF_UP) and not config.getoption("asyncio_loop")
    return {"loop": new_event_loop if is_on_it else asyncio.new_event_loop}


def pytest_configure() -> None:
    """
    Keep the folders of tests in memory, too: our files are forced to the disk, which takes milliseconds each.

    The garbage collector begins later than by default: what collecting tests makes stays, and would be looked through
    often.
    """
    gc.set_threshold(*COLLECTIONS)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_fast_directory()))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """
    Do what is done by default.

    Where the default itself is there, asyncio replaces it each time that a test or a fixture runs, and that has Python
    describe the task with all fixtures it was given: a twelfth of the time of tests of the gateway.
    """
    signal.default_int_handler(number, frame)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through nine thousand tests and their modules, which stay, again."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """End what all tests of this process have shared."""
    close_shared_engine()
