# SPDX-License-Identifier: Apache-2.0
"""
A machine's apt with sources, keys and settings of its own, and a repository in a folder, signed with a real key.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUITE = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class AptMachine:
    """What apt reads in place of /etc/apt while APT_CONFIG names `config`."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "apt.conf"

    @property
    def sources(self) -> Path:
        return self.folder / "etc" / "sources.list.d"

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def release(self) -> Path:
        return self.repository / "dists" / SUITE

    @property
    def keyring(self) -> Path:
        """The public key that the machine trusts."""
        return self.folder / "etc" / "trusted.gpg.d" / "own.gpg"

    def make(self, *, settings: str = "") -> None:
        """Make the machine's folders and its settings."""
        for sub in ("etc/sources.list.d", "etc/trusted.gpg.d", "lists/partial", "cache/archives/partial", "parts"):
            (self.folder / sub).mkdir(parents=True)
        (self.folder / "status").touch()
        self.config.write_text(
            f'Dir::Etc "{self.folder}/etc";\nDir::Etc::parts "{self.folder}/parts";\n'
            f'Dir::State::lists "{self.folder}/lists";\nDir::State::status "{self.folder}/status";\n'
            f'Dir::Cache "{self.folder}/cache";\nAPT::Sandbox::User "root";\n{settings}\n'
        )

    def publish(self, package: Path) -> None:
        """Make a repository that holds `package`; it is not signed."""
        fields = _output("dpkg-deb", "-f", str(package))
        architecture = _output("dpkg", "--print-architecture").strip()
        binary = self.release / "main" / f"binary-{architecture}"
        binary.mkdir(parents=True)
        pool = self.repository / "pool"
        pool.mkdir()
        (pool / package.name).write_bytes(package.read_bytes())
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        size = package.stat().st_size
        listed = f"{fields}Filename: pool/{package.name}\nSize: {size}\nSHA256: {digest}\n"
        (binary / "Packages").write_text(listed)
        self.list_again(architecture)

    def list_again(self, architecture: str) -> None:
        """Write the release file over the list of packages as it is."""
        name = f"main/binary-{architecture}/Packages"
        listed = (self.release / name).read_bytes()
        (self.release / "Release").write_text(
            f"Suite: {SUITE}\nCodename: {SUITE}\nArchitectures: {architecture}\nComponents: main\n"
            "Date: Thu, 02 Jan 2020 12:00:00 UTC\n"
            f"SHA256:\n {hashlib.sha256(listed).hexdigest()} {len(listed)} {name}\n"
        )

    def add(self, text: str, *, name: str = "own.list") -> None:
        """Let the machine have a source; `{uri}` and `{keyring}` stand for the repository's and its own."""
        (self.sources / name).write_text(text.format(uri=f"file:{self.repository}", keyring=self.keyring))

    def update(self) -> None:
        """Do what the machine does by itself, with whatever its settings allow."""
        subprocess.run(["apt-get", "-q", "update"], env={**os.environ, "APT_CONFIG": str(self.config)}, check=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """A key of OpenPGP."""

    home: Path

    def export(self, keyring: Path) -> None:
        """Write the public key where apt looks for those it trusts."""
        keyring.write_bytes(subprocess.run([*self._gpg, "--export"], check=True, capture_output=True).stdout)

    def sign(self, release: Path) -> None:
        """Sign what the release file of `release` says."""
        (release / "InRelease").unlink(missing_ok=True)
        subprocess.run(
            [*self._gpg, "--clearsign", "--output", release / "InRelease", release / "Release"],
            check=True,
            capture_output=True,
        )

    @property
    def _gpg(self) -> list[str]:
        return ["gpg", "--homedir", str(self.home), "--batch", "--pinentry-mode", "loopback", "--passphrase", ""]


@contextmanager
def new_signer(home: Path) -> Iterator[Signer]:
    """Yield a new key; the process that gpg starts to hold it ends with the context."""
    home.mkdir(mode=0o700)
    signer = Signer(home=home)
    try:
        make = [*signer._gpg, "--quick-generate-key", "repository@example.com", "rsa2048", "sign", "never"]
        subprocess.run(make, check=True, capture_output=True)
        yield signer
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True, capture_output=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
