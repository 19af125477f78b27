# SPDX-License-Identifier: Apache-2.0
"""
A time-stamping authority for tests: `openssl ts` itself, with a root, an intermediate and certificates of its own,
served on loopback. Its answers are OpenSSL's; what is wrong with one is wrong because it was configured so.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response

from testkit.servers.loopback import serve

POLICY: Final = "1.3.6.1.4.1.99999.1"
OTHER_POLICY: Final = "1.3.6.1.4.1.99999.2"
ELLIPTIC: Final = ("ecparam", "-name", "prime256v1", "-genkey", "-noout")
RSA: Final = ("genrsa",)

_CONFIGURATION: Final = """
[req]
distinguished_name = name
prompt = no
[name]
CN = unused
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[stamps]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[authority]
serial = {directory}/serial
default_policy = {policy}
other_policies = {other}
digests = {digests}
signer_digest = sha256
accuracy = secs:1
ess_cert_id_chain = no
ess_cert_id_alg = {certificate_hash}
"""


def openssl(*arguments: str | Path) -> None:
    """Run one command of OpenSSL; fails loudly."""
    subprocess.run([_program(), *map(str, arguments)], check=True, capture_output=True)


def _program() -> str:
    found = shutil.which("openssl")
    if found is None:
        raise FileNotFoundError("openssl is not on the path: the tests of time stamps need it")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """An authority in a directory of its own: root, intermediate, and the certificate that it stamps with."""

    directory: Path

    @property
    def root(self) -> bytes:
        """The root certificate, in PEM: what those who verify pin."""
        return (self.directory / "root.pem").read_bytes()

    def answer(self, request: bytes) -> bytes:
        """Return OpenSSL's response to a request: a stamp, or its refusal."""
        query, reply = self.directory / "query", self.directory / "reply"
        query.write_bytes(request)
        configuration = ("-config", self.directory / "openssl.cnf", "-section", "authority")
        signer = ("-signer", self.directory / "tsa.pem", "-inkey", self.directory / "tsa.key")
        chain = ("-chain", self.directory / "intermediate.pem")
        openssl("ts", "-reply", *configuration, "-queryfile", query, *signer, *chain, "-out", reply)
        return reply.read_bytes()


def make_authority(
    directory: Path, *, digests: str = "sha256", certificate_hash: str = "sha256", key: Sequence[str] = ELLIPTIC
) -> Authority:
    """
    Make an authority that stamps imprints of `digests` and names its certificate by `certificate_hash`.

    `key` is the command of OpenSSL that makes a private key.
    """
    directory.mkdir(parents=True)
    (directory / "serial").write_text("01\n")
    (directory / "openssl.cnf").write_text(
        _CONFIGURATION.format(
            directory=directory,
            policy=POLICY,
            other=OTHER_POLICY,
            digests=digests,
            certificate_hash=certificate_hash,
        )
    )
    for name in ("root", "intermediate", "tsa"):
        openssl(*key, "-out", directory / f"{name}.key")
    _certify(directory, "root", None, "ca")
    _certify(directory, "intermediate", "root", "ca")
    _certify(directory, "tsa", "intermediate", "stamps")
    return Authority(directory=directory)


def _certify(directory: Path, name: str, issuer: str | None, extensions: str) -> None:
    configuration = directory / "openssl.cnf"
    subject = ("-subj", f"/CN=test {name}", "-config", configuration, "-key", directory / f"{name}.key")
    certificate = ("-out", directory / f"{name}.pem")
    if issuer is None:
        openssl("req", "-x509", "-new", *subject, "-extensions", extensions, *certificate)
        return
    request = directory / f"{name}.csr"
    openssl("req", "-new", *subject, "-out", request)
    signer = ("-CA", directory / f"{issuer}.pem", "-CAkey", directory / f"{issuer}.key", "-CAcreateserial")
    extended = ("-extfile", configuration, "-extensions", extensions)
    openssl("x509", "-req", "-in", request, *signer, *extended, *certificate)


@asynccontextmanager
async def serve_authority(authority: Authority) -> AsyncIterator[str]:
    """Yield the URL at which an authority takes requests (RFC 3161, section 3.4)."""
    app = FastAPI()

    @app.post("/stamp")
    async def stamp(request: Request) -> Response:
        if request.headers.get("Content-Type") != "application/timestamp-query":
            return Response(status_code=415)
        answer = await asyncio.to_thread(authority.answer, await request.body())
        return Response(answer, media_type="application/timestamp-reply")

    async with serve(app) as url:
        yield f"{url}/stamp"
