# SPDX-License-Identifier: Apache-2.0
"""
Applications of the eventsourcing library that find their log by variables: `PERSISTENCE_MODULE=lakeproof.event_store`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from eventsourcing.application import Application
from eventsourcing.cryptography import AESCipher
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    IntegrityError,
    NotSupportedError,
    ProcessRecorder,
    TrackingRecorder,
)
from eventsourcing.utils import Environment

from lakeproof.errors import LakeproofError, SchemaChangedError, ServerError, SettingsError
from lakeproof.event_store import Factory
from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.services import Services
from lakeproof.serving.system_log import record_in_system_log
from lakeproof.signing import open_signer
from lakeproof.tenants import found_tenant
from ledger.errors import LogUnavailableError, NoSuchLogError
from ledger.store.event_store import LogAggregateRecorder, LogRecorder
from testkit.databases import LOGIN_PASSWORD
from testkit.environment import PROJECT
from testkit.gateway.recovery_site import export, run
from testkit.ledger.library_cases import persistence as suite


class Account(Aggregate):
    """An ordinary aggregate of the library."""

    @event("Opened")
    def __init__(self) -> None:
        self.balance = 0

    @event("Credited")
    def credit(self, amount: int) -> None:
        self.balance += amount


class Bank(Application[UUID]):
    """An ordinary application of the library."""


@pytest.fixture
def variables(
    database: str, installation: Provisioned, short_directory: Callable[[], AbstractContextManager[Path]]
) -> Iterator[dict[str, str]]:
    """What leads an application to a log of its own, in the database of this test."""
    tenant = uuid4()
    create_tenant_log(database, installation, tenant)
    with short_directory() as directory:
        password = directory / "home" / "secrets" / "login-password"
        password.parent.mkdir(mode=0o700, parents=True)
        password.touch(mode=0o600)
        password.write_text(LOGIN_PASSWORD)  # roles are the whole server's, which all tests share
        yield {
            "PERSISTENCE_MODULE": "lakeproof.event_store",
            "EVENT_STORE_LOG": tenant.hex,
            "LAKEPROOF_HOME": str(directory / "home"),
            "LAKEPROOF_DSN": database,
        }
    assert running() == [], "a store outlives its application"


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "event store" in thread.name]


class TestFactory(suite.InfrastructureFactoryTestCase[Factory]):
    @pytest.fixture(autouse=True)
    def _take_environment(self, variables: Mapping[str, str]) -> None:
        self.env = Environment("Bank", dict(variables))

    def expected_factory_class(self) -> type[Factory]:
        return Factory

    def expected_aggregate_recorder_class(self) -> type[AggregateRecorder]:
        return LogAggregateRecorder

    def expected_application_recorder_class(self) -> type[ApplicationRecorder]:
        return LogRecorder

    def expected_tracking_recorder_class(self) -> type[TrackingRecorder]:
        raise NotImplementedError

    def tracking_recorder_subclass(self) -> type[TrackingRecorder]:
        raise NotImplementedError

    def expected_process_recorder_class(self) -> type[ProcessRecorder]:
        raise NotImplementedError

    def test_create_tracking_recorder(self) -> None:
        """Replaces the library's case: there are none."""
        with pytest.raises(NotSupportedError):
            self.factory.tracking_recorder()

    def test_create_process_recorder(self) -> None:
        """Replaces the library's case: there are none."""
        with pytest.raises(NotSupportedError):
            self.factory.process_recorder()


def test_what_one_application_saves_another_finds(variables: dict[str, str]) -> None:
    with Bank(variables) as bank:
        account = Account()
        account.credit(5)
        bank.save(account)
    with Bank(variables) as other:
        found: Account = other.repository.get(account.id)
        assert (found.balance, found.version) == (5, 2)
        assert [one.id for one in other.notification_log.select(start=1, limit=10)] == [1, 2]


def test_of_two_applications_that_save_the_same_version_one_is_refused(variables: dict[str, str]) -> None:
    with Bank(variables) as one, Bank(variables) as other:
        account = Account()
        one.save(account)
        theirs: Account = other.repository.get(account.id)
        account.credit(1)
        one.save(account)
        theirs.credit(2)
        with pytest.raises(IntegrityError):
            other.save(theirs)
        again: Account = other.repository.get(account.id)
        assert again.balance == 1


def test_snapshots_are_taken_where_the_environment_enables_them(variables: dict[str, str]) -> None:
    with Bank({**variables, "IS_SNAPSHOTTING_ENABLED": "y"}) as bank:
        account = Account()
        account.credit(3)
        bank.save(account)
        bank.take_snapshot(account.id)
        assert bank.snapshots is not None
        assert [snapshot.originator_version for snapshot in bank.snapshots.get(account.id)] == [2]
        found: Account = bank.repository.get(account.id)
        assert found.balance == 3


def test_states_are_enciphered_with_the_library_s_cipher(variables: dict[str, str]) -> None:
    cipher = "eventsourcing.cryptography:AESCipher"
    key = AESCipher.create_key(16)
    with Bank({**variables, "CIPHER_TOPIC": cipher, "CIPHER_KEY": key}) as bank:
        account = Account()
        account.credit(3)
        bank.save(account)
        assert all(b"amount" not in one.state for one in bank.recorder.select_notifications(None, 10))
        found: Account = bank.repository.get(account.id)
        assert found.balance == 3


def test_the_application_s_own_variable_comes_first(variables: dict[str, str]) -> None:
    own = {**variables, "EVENT_STORE_LOG": "nobody's", "BANK_EVENT_STORE_LOG": variables["EVENT_STORE_LOG"]}
    with Bank(own) as bank:
        bank.save(Account())


def test_a_closed_application_has_left_nothing_behind_and_saves_nothing(variables: dict[str, str]) -> None:
    bank = Bank(variables)
    bank.close()
    bank.close()
    assert running() == []
    with pytest.raises(LogUnavailableError):
        bank.save(Account())
    with pytest.raises(LogUnavailableError):
        bank.recorder.max_notification_id()


def test_an_application_that_nobody_closes_ends_when_it_is_forgotten(variables: dict[str, str]) -> None:
    bank = Bank(variables)
    assert len(running()) == 1
    del bank
    gc.collect()
    assert running() == []


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"EVENT_STORE_LOG": ""}, SettingsError, "EVENT_STORE_LOG is not set"),
        ({"EVENT_STORE_LOG": "nobody's"}, NoSuchLogError, "nobody's"),
        ({"EVENT_STORE_LOG": "system"}, NoSuchLogError, "the installation's own"),
        ({"LAKEPROOF_HOMES": "/x"}, SettingsError, "LAKEPROOF_HOMES"),
        ({"LAKEPROOF_DSN": "host=/nonexistent"}, ServerError, "LAKEPROOF_DSN"),
        ({"APPLICATION_RECORDER_TOPIC": "some:Recorder"}, NotSupportedError, "APPLICATION_RECORDER_TOPIC"),
    ],
)
def test_what_leads_to_no_log_is_refused_with_what_to_do(
    variables: dict[str, str], changed: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        Bank({**variables, **changed})
    assert isinstance(raised.value, LakeproofError | NoSuchLogError | NotSupportedError)
    assert running() == []


async def test_a_database_whose_schema_was_changed_is_not_served(services: Services, variables: dict[str, str]) -> None:
    signer = await open_signer(services.installation)
    for _ in range(2):  # the first one provisions, which a clone lacks; what is there then is recorded
        with await asyncio.to_thread(Bank, variables) as bank:
            await asyncio.to_thread(bank.save, Account())
        await record_in_system_log(services, signer.keys)
    with psycopg.connect(services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute("CREATE RULE evil AS ON INSERT TO ledger.recorded_events DO INSTEAD NOTHING")
    with pytest.raises(SchemaChangedError, match=r"rule ledger\.recorded_events\.evil"):
        await asyncio.to_thread(Bank, variables)


async def test_a_log_with_an_application_s_entries_is_verified_in_every_way(
    services: Services, variables: dict[str, str], tmp_path: Path
) -> None:
    founded = await found_tenant(services, name="bank", identity="ada@bank.example")

    def work() -> None:
        with Bank({**variables, "EVENT_STORE_LOG": "bank", "IS_SNAPSHOTTING_ENABLED": "y"}) as bank:
            account = Account()
            for amount in range(20):
                account.credit(amount)
                bank.save(account)
            bank.take_snapshot(account.id)
            selected = bank.recorder.select_notifications(None, 30)
            assert [one.originator_version for one in selected] == list(range(1, 22))

    await asyncio.to_thread(work)
    path = await export(services, founded.origin, tmp_path / "bank")
    key = services.installation.verifier_key(founded.origin).format()
    await record_in_system_log(services, services.installation.open_keys())
    for arguments in (("--log", "bank", "--deep"), ("--log", "bank", "--key", key), (path, "--key", key)):
        told = await run(services, "verify", *arguments)
        assert told.exit_code == 0, told.output
    second = ("-I", str(PROJECT / "verify_lakeproof.py"), str(path), "--key", key)
    process = await asyncio.create_subprocess_exec(sys.executable, *second, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed

    with psycopg.connect(services.installation.admin_dsn, autocommit=True) as owner:
        moved = "UPDATE ledger.recorded_events SET version = 100 WHERE kind = 'event' AND version = 7"
        assert owner.execute(moved).rowcount == 1
    told = await run(services, "verify", "--log", "bank", "--deep")
    assert told.exit_code == 1
    assert "ledger.recorded_events event/aggregate:" in told.output
