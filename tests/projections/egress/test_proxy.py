# SPDX-License-Identifier: Apache-2.0
"""
The proxy for libraries that connect by themselves, and Arrow's S3 client behind it: real sockets, traps that count.
"""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

import pytest

from lakeproof.demo.cloud import Cloud
from projections.egress.proxy import HEAD_SIZE_BYTES_MAX, Destination, EgressProxy, proxy_for
from projections.egress.rules import EgressRules
from projections.errors import FileMissingError, FileUnreadableError, ProjectionError, StorageUnavailableError
from projections.lake.storage import S3_PROPERTIES, Storage
from testkit.servers.cloud import fresh_cloud, start_cloud
from testkit.servers.loopback import LOOPBACK
from testkit.servers.traps import LOOPBACK_SPELLINGS, Trap, set_trap

ACME: Final = UUID(int=1)
PUBLIC: Final = EgressRules.parse("public")
FILE: Final = "s3://bucket/lake/t/metadata/1.metadata.json"


class NoSecrets:
    """There is one secret, of every tenant."""

    def read(self, _tenant: UUID, _secret: str) -> str:
        return "hidden"


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A place where nobody must come; if somebody has, the test fails."""
    with set_trap() as trap:
        yield trap
        assert trap.caught() == 0


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """A bucket."""
    with start_cloud() as endpoint:
        yield fresh_cloud(endpoint)


@pytest.fixture
def proxy() -> Iterator[EgressProxy]:
    """A proxy of the test's own, which goes to 127.0.0.1."""
    proxy = EgressProxy(EgressRules.parse("127.0.0.1"))
    proxy.start()
    yield proxy
    proxy.close()


def elsewhere(rules: EgressRules, endpoint: str | None, **options: str) -> Storage:
    """Return the storage of a catalog elsewhere, with its files in one bucket."""
    told = {"location": "s3://bucket/lake", "s3.region": "us-east-1", **options}
    if endpoint is not None:
        told["s3.endpoint"] = endpoint
    return Storage.of_foreign_catalog(told, tenant=ACME, secrets=NoSecrets(), egress=rules)


def answers_from(addresses: Sequence[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the system's resolver answer in turn, and the last answer for ever; return the hosts it was asked for."""
    asked: list[str] = []

    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *arguments: Any, **named: Any) -> list[tuple[Any, ...]]:
        if host[0].isdigit():
            return list(real(host, port, *arguments, **named))
        asked.append(host)
        found = addresses[min(len(asked), len(addresses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr("projections.egress.connecting.socket.getaddrinfo", getaddrinfo)
    return asked


# Storage


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_storage_at_an_address_that_is_not_allowed_is_not_connected_to(trap: Trap, scheme: str, host: str) -> None:
    storage = elsewhere(PUBLIC, f"{scheme}://{host}:{trap.port}")
    with pytest.raises(ProjectionError, match="LAKEPROOF_UPSTREAMS_ALLOWED") as refused:
        storage.read_bytes(FILE, size_bytes_max=10)
    assert isinstance(refused.value, FileUnreadableError | StorageUnavailableError)


@pytest.mark.parametrize(
    "endpoint", ["", "minio:9000", "ftp://store.example", "http://", "http://[::1", "http://h:x", "//h"]
)
def test_an_endpoint_that_is_no_url_opens_nothing(endpoint: str) -> None:
    with pytest.raises(FileUnreadableError, match=r"s3\.endpoint"):
        elsewhere(PUBLIC, endpoint).read_bytes(FILE, size_bytes_max=10)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_store_whose_name_leads_inside_the_second_time_is_refused_where_it_connects(
    trap: Trap, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """DNS rebinding: when the storage is opened the name is allowed, when Arrow connects it is not any more."""
    asked = answers_from([["127.0.0.2"], ["127.0.0.1"]], monkeypatch)
    storage = elsewhere(EgressRules.parse("127.0.0.2"), f"{scheme}://store.example:{trap.port}")
    with pytest.raises((FileUnreadableError, StorageUnavailableError)):
        storage.read_bytes(FILE, size_bytes_max=10)
    assert len(asked) >= 2, "it was asked again for the connection"


def test_a_store_by_name_is_read_through_the_connection_that_was_checked(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.client("s3").put_object(Bucket=cloud.bucket, Key="lake/one.json", Body=b"1" * 300_000)
    asked = answers_from([["127.0.0.1"]], monkeypatch)
    storage = elsewhere(
        LOOPBACK,
        cloud.endpoint.replace("127.0.0.1", "s3.eu-central-1.amazonaws.com"),
        **{"location": f"s3://{cloud.bucket}/lake", "s3.access-key-id": "a", "s3.secret-access-key": "secret:b"},
    )
    for _ in range(3):
        assert storage.read_bytes(f"s3://{cloud.bucket}/lake/one.json", size_bytes_max=300_000) == b"1" * 300_000
    with pytest.raises(FileMissingError):
        storage.read_bytes(f"s3://{cloud.bucket}/lake/none.json", size_bytes_max=10)
    assert set(asked) == {"s3.eu-central-1.amazonaws.com"}


def test_a_store_that_redirects_leads_nowhere_else(trap: Trap) -> None:
    moved = f"HTTP/1.1 307 Moved\r\nLocation: {trap.url}/bucket/x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with answering(moved.encode()) as (port, seen):
        storage = elsewhere(LOOPBACK, f"http://127.0.0.1:{port}")
        with pytest.raises((FileUnreadableError, StorageUnavailableError)):
            storage.read_bytes(FILE, size_bytes_max=10)
    assert seen
    assert b"proxy-authorization" not in b"".join(seen).lower(), "the token stays with the proxy"


def test_without_an_endpoint_nothing_but_amazons_own_hosts_is_asked(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answers_from([["127.0.0.1"]], monkeypatch)
    for name in (
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "HTTP_PROXY",
        "HTTPS_PROXY",
    ):
        monkeypatch.setenv(name, trap.url)
    for region in ({}, {"s3.region": "eu-central-1"}, {"s3.region": f"x.127.0.0.1:{trap.port}/"}):
        storage = Storage.of_foreign_catalog(
            {"location": "s3://bucket/lake", **region}, tenant=ACME, secrets=NoSecrets(), egress=PUBLIC
        )
        with pytest.raises((FileUnreadableError, StorageUnavailableError)):
            storage.read_bytes(FILE, size_bytes_max=10)
    assert all(host.endswith(".amazonaws.com") for host in asked)


def test_of_a_tenants_options_none_loads_code_or_leads_elsewhere(trap: Trap) -> None:
    hostile = {
        "py-io-impl": "os.path",
        "io-impl": "evil.FileIO",
        "s3.proxy-uri": trap.url,
        "s3.signer": "S3V4RestSigner",
        "s3.signer.uri": trap.url,
        "s3.role-arn": "arn:aws:iam::1:role/x",
        "s3.resolve-region": "true",
        "s3.connect-timeout": "100000",
        "s3.request-timeout": "100000",
        "s3.anonymous": "false",
        "client.access-key-id": "x",
        "gcs.service.host": trap.url,
        "adls.connection-string": "x",
        "hdfs.host": "127.0.0.1",
        "hf.endpoint": trap.url,
    }
    storage = elsewhere(PUBLIC, "https://store.example", **hostile)
    assert set(storage.properties) <= {*S3_PROPERTIES, "s3.anonymous"}
    assert storage.properties["s3.anonymous"] == "true"


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{port}/lake/x",
        "https://127.0.0.1:{port}/lake/x",
        "gs://bucket/lake/x",
        "abfss://c@127.0.0.1:{port}/lake/x",
        "hdfs://127.0.0.1:{port}/lake/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "file://127.0.0.1/etc/passwd",
        "s3://other/lake/x",
        "s3://bucket/lakeside/x",
        "s3://bucket/lake/../x",
        "s3://bucket@127.0.0.1:{port}/lake/x",
        "s3://127.0.0.1:{port}/lake/x",
    ],
)
def test_a_location_that_an_upstream_names_is_read_below_the_catalogs_own_alone(trap: Trap, location: str) -> None:
    storage = elsewhere(LOOPBACK, trap.url)
    with pytest.raises(FileUnreadableError, match="expected a"):
        storage.read_bytes(location.format(port=trap.port), size_bytes_max=10)


def test_the_operators_own_storage_is_reached_without_a_detour(cloud: Cloud) -> None:
    cloud.client("s3").put_object(Bucket=cloud.bucket, Key="own/one.json", Body=b"{}")
    storage = Storage(properties=cloud.engine_properties(), within=(f"s3://{cloud.bucket}/own",))
    assert storage.egress is None
    assert storage.read_bytes(f"s3://{cloud.bucket}/own/one.json", size_bytes_max=2) == b"{}"


# The proxy


def request(port: int, head: str, *, token: str | None = None) -> bytes:
    """Send a head to the proxy and return all that comes back."""
    credentials = "" if token is None else f"Proxy-Authorization: Basic {b64encode(f'{token}:'.encode()).decode()}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"{head}\r\n{credentials}\r\n".encode("latin-1"))
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65_536):
        received += piece
    return received


@contextmanager
def answering(answer: bytes, *, keep: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the port of a server that gives `answer` to every head, and the heads that it has seen."""
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            received = b""
            while True:
                while b"\r\n\r\n" not in received:
                    piece = connection.recv(65_536)
                    if not piece:
                        return
                    received += piece
                head, _, received = received.partition(b"\r\n\r\n")
                seen.append(head)
                connection.sendall(answer)
                if not keep:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)


OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_reader_is_passed_on_without_what_is_the_proxys(proxy: EgressProxy) -> None:
    with answering(OK) as (port, seen):
        token = proxy.token(Destination(host="store.local", port=port), Destination(host="127.0.0.1", port=port))
        head = f"GET http://127.0.0.1:{port}/b/k?x=1 HTTP/1.1\r\nHost: h\r\nProxy-Connection: keep-alive\r\nX-A: b"
        assert request(proxy.port, head, token=token) == OK
        assert seen == [b"GET /b/k?x=1 HTTP/1.1\r\nHost: h\r\nX-A: b"]
        tunnel = request(proxy.port, f"CONNECT 127.0.0.1:{port} HTTP/1.1", token=token + "x")
        assert tunnel.startswith(b"HTTP/1.1 407 ")


def test_a_tunnel_passes_bytes_both_ways(proxy: EgressProxy) -> None:
    with answering(OK) as (port, seen):
        token = proxy.token(Destination(host="127.0.0.1", port=port))
        credentials = b64encode(f"{token}:".encode()).decode()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
            connection.sendall(head.encode())
            established = b"HTTP/1.1 200 Connection established\r\n\r\n"
            assert connection.recv(len(established), socket.MSG_WAITALL) == established
            connection.sendall(b"anything at all\r\n\r\n")
            assert read_all(connection) == OK
        assert seen == [b"anything at all"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET http://127.0.0.1:{other}/ HTTP/1.1", 403),
        ("GET http://localhost:{port}/ HTTP/1.1", 403),
        ("GET http://127.1:{port}/ HTTP/1.1", 403),
        ("CONNECT 127.0.0.1:{other} HTTP/1.1", 403),
        ("CONNECT [::1]:{port} HTTP/1.1", 403),
        ("CONNECT 127.0.0.1 HTTP/1.1", 403),
        ("CONNECT  HTTP/1.1", 403),
        ("POST http://127.0.0.1:{port}/ HTTP/1.1", 405),
        ("PUT http://127.0.0.1:{port}/ HTTP/1.1", 405),
        ("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nContent-Length: 5", 405),
        ("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked", 405),
        ("GET https://127.0.0.1:{port}/ HTTP/1.1", 405),
        ("GET /b/k HTTP/1.1", 400),
        ("GET http://127.0.0.1:{port}/ HTTP/2", 505),
        ("GET http://127.0.0.1:x/ HTTP/1.1", 400),
        ("GET http://[::1/ HTTP/1.1", 400),
        ("CONNECT 127.0.0.1:x HTTP/1.1", 400),
        ("nonsense", 400),
        ("", 400),
    ],
)
def test_whoever_wants_anything_else_is_refused(proxy: EgressProxy, trap: Trap, head: str, status: int) -> None:
    with set_trap() as other:
        token = proxy.token(Destination(host="127.0.0.1", port=trap.port))
        answer = request(proxy.port, head.format(port=trap.port, other=other.port), token=token)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert other.caught() == 0


def test_a_head_without_an_end_is_cut_off(proxy: EgressProxy) -> None:
    with suppress(ConnectionError):  # what it has not read it does not wait for
        answer = request(proxy.port, f"GET http://127.0.0.1/ HTTP/1.1\r\nX: {'x' * 4 * HEAD_SIZE_BYTES_MAX}")
        assert not answer or answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("credentials", [None, "", "Basic", "Basic !", "Bearer {token}", "Basic {token}"])
def test_whoever_has_no_token_goes_nowhere(proxy: EgressProxy, trap: Trap, credentials: str | None) -> None:
    token = proxy.token(Destination(host="127.0.0.1", port=trap.port))
    line = "" if credentials is None else f"\r\nProxy-Authorization: {credentials.format(token=token)}"
    answer = request(proxy.port, f"GET {trap.url}/ HTTP/1.1{line}")
    assert answer.startswith(b"HTTP/1.1 407 ")
    twice = request(proxy.port, f"GET {trap.url}/ HTTP/1.1\r\nProxy-Authorization: Basic eA==", token=token)
    assert twice.startswith(b"HTTP/1.1 407 ")


def test_a_token_is_of_its_destination_alone(proxy: EgressProxy, trap: Trap) -> None:
    here, there = Destination(host="127.0.0.1", port=trap.port), Destination(host="127.0.0.1", port=1)
    assert proxy.token(here) == proxy.token(here) != proxy.token(there)
    answer = request(proxy.port, f"GET {trap.url}/ HTTP/1.1", token=proxy.token(there))
    assert answer.startswith(b"HTTP/1.1 403 ")
    below = Destination(host="amazonaws.com", port=443, below=True)
    assert below.holds("bucket.s3.eu-central-1.AMAZONAWS.com", 443)
    assert Destination.of_url("https://Store.example./x").holds("STORE.example.", 443)
    for host, port in (
        ("amazonaws.com", 443),
        ("evilamazonaws.com", 443),
        ("x.amazonaws.com.evil", 443),
        ("x.amazonaws.com", 80),
    ):
        assert not below.holds(host, port)


def test_an_address_that_is_not_allowed_is_refused_by_the_proxy_itself(trap: Trap) -> None:
    proxy = EgressProxy(PUBLIC)
    proxy.start()
    for host in ("127.0.0.1", "localhost", "2130706433"):
        token = proxy.token(Destination(host=host, port=trap.port))
        for head in (f"GET http://{host}:{trap.port}/ HTTP/1.1", f"CONNECT {host}:{trap.port} HTTP/1.1"):
            answer = request(proxy.port, head, token=token)
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b"LAKEPROOF_UPSTREAMS_ALLOWED" in answer
    proxy.close()


def test_one_connection_takes_many_requests_and_all_go_to_the_first_ones_destination(
    proxy: EgressProxy, trap: Trap
) -> None:
    with answering(OK, keep=True) as (port, seen):
        token = proxy.token(Destination(host="127.0.0.1", port=port), Destination(host="127.0.0.1", port=trap.port))
        credentials = f"Proxy-Authorization: Basic {b64encode(f'{token}:'.encode()).decode()}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            for number in range(3):
                whole = f"GET http://127.0.0.1:{port}/{number} HTTP/1.1\r\n{credentials}".encode()
                connection.sendall(whole[:20])
                connection.sendall(whole[20:])
                assert connection.recv(len(OK), socket.MSG_WAITALL) == OK
            connection.sendall(f"GET {trap.url}/ HTTP/1.1\r\n{credentials}".encode())
            assert read_all(connection) == b""
        assert [head.split()[1] for head in seen] == [b"/0", b"/1", b"/2"]


def test_a_store_that_is_away_is_said(proxy: EgressProxy) -> None:
    with set_trap() as trap:
        url, destination = trap.url, Destination(host="127.0.0.1", port=trap.port)
    assert request(proxy.port, f"GET {url}/ HTTP/1.1", token=proxy.token(destination)).startswith(b"HTTP/1.1 502 ")


def test_a_process_has_one_proxy_for_the_same_rules() -> None:
    assert proxy_for(PUBLIC) is proxy_for(EgressRules.parse("public"))
    assert proxy_for(PUBLIC) is not proxy_for(LOOPBACK)
