# SPDX-License-Identifier: Apache-2.0
"""
The secrets that catalog options name as `secret:<id>`: one file of mode 0600 each, in a folder per tenant, never
logged. Each is one line of printable text, or PEM (RFC 7468): certificates, and keys.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final
from uuid import UUID

from ledger.files.atomic import own_temporary, replace_file
from projections.errors import SecretMissingError

REFERENCE: Final = "secret:"
SECRET_SIZE_BYTES_MAX: Final = 16 * 1024
PEM: Final = "-----BEGIN "
"""What a secret of several lines contains: any other is a mistake, such as a whole file of settings."""

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class SecretDirectory:
    """The secrets below one directory, which every process that needs them must see."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, tenant: UUID, secret: str) -> str:
        """
        Return the secret of that id.

        Raises:
            SecretMissingError: if the tenant has none of that id, or its file can be read by others.
        """
        file = self._file(tenant, secret)
        try:
            with file.open("rb") as stream:
                mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
                value = stream.read(SECRET_SIZE_BYTES_MAX + 1)
        except OSError as error:
            raise SecretMissingError(
                f"secret {secret!r} of tenant {tenant}: expected {file}, found none that can be read "
                f"({error.strerror}): store it with `lakeproof secrets create {secret}`"
            ) from error
        if mode & 0o077:
            raise SecretMissingError(f"{file} has mode {mode:04o} and others can read it: run chmod 600 {file}")
        return _text(value, where=str(file))

    def write(self, tenant: UUID, secret: str, value: str) -> None:
        """
        Store a secret, whole or not at all, in place of one that is there.

        Raises:
            SecretMissingError: if the id or the value is not of its form, or it cannot be stored.
        """
        file = self._file(tenant, secret)
        data = value.encode("utf-8", "surrogatepass")
        _text(data, where=f"secret {secret!r}")
        try:
            for folder in (self.directory, file.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(file, data, temporary=own_temporary(file))
        except OSError as error:
            raise SecretMissingError(f"{file} cannot be written ({error.strerror}): nothing was stored") from error

    def create(self, tenant: UUID, secret: str, value: str) -> None:
        """
        Store a new secret. Raises as `write`, and:
            SecretMissingError: if there is one of that id already.
        """
        if self._file(tenant, secret).exists():
            raise SecretMissingError(f"there is a secret {secret!r} already: change it (`lakeproof secrets change`)")
        self.write(tenant, secret, value)

    def change(self, tenant: UUID, secret: str, value: str) -> None:
        """
        Store another value of a secret. Raises as `write`, and:
            SecretMissingError: if there is none of that id.
        """
        self._check_there(tenant, secret)
        self.write(tenant, secret, value)

    def delete(self, tenant: UUID, secret: str) -> None:
        """
        Delete a secret.

        Raises:
            SecretMissingError: if there is none of that id, or its file cannot be deleted.
        """
        self._check_there(tenant, secret)
        file = self._file(tenant, secret)
        try:
            file.unlink()
        except OSError as error:
            raise SecretMissingError(f"{file} cannot be deleted ({error.strerror}): nothing was changed") from error

    def ids(self, tenant: UUID) -> list[str]:
        """
        Return the ids of a tenant's secrets, sorted.

        Raises:
            SecretMissingError: if the folder cannot be read.
        """
        folder = self.directory / tenant.hex
        try:
            return sorted(file.name for file in folder.iterdir() if _ID.fullmatch(file.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SecretMissingError(f"{folder} cannot be read ({error.strerror})") from error

    def _check_there(self, tenant: UUID, secret: str) -> None:
        if not self._file(tenant, secret).is_file():
            raise SecretMissingError(f"there is no secret {secret!r}: `lakeproof secrets list` shows their ids")

    def _file(self, tenant: UUID, secret: str) -> Path:
        # An id is a file's name here, so it must be one wherever it comes from.
        if not _ID.fullmatch(secret):
            raise SecretMissingError(
                f"expected the id of a secret: 1 to 63 of a-z, 0-9, '_' and '-', found {secret!r:.80}"
            )
        return self.directory / tenant.hex / secret


def _text(value: bytes, *, where: str) -> str:
    try:
        text = value.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise SecretMissingError(f"{where}: expected UTF-8, found other bytes") from error
    lines = text.replace("\r\n", "\n").split("\n") if PEM in text else [text]
    if not text or len(value) > SECRET_SIZE_BYTES_MAX or not all(line.isprintable() for line in lines):
        raise SecretMissingError(f"{where}: expected 1 to {SECRET_SIZE_BYTES_MAX} bytes of printable text, or PEM")
    return text
