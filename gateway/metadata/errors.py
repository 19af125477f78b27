# SPDX-License-Identifier: Apache-2.0
"""What can go wrong when requirements are checked and updates applied, beyond the errors of the whole gateway."""

from __future__ import annotations

from typing import Final

from gateway.errors import BadRequestError, GatewayError, RequirementFailedError

_TEXT_CHARS_MAX: Final = 4_000  # texts quote types and fields, which may be as long as the request


class TableExistsError(RequirementFailedError):
    """`assert-create` found a table: a commit fails, a createTable answers that the table already exists."""


class InvalidUpdateError(BadRequestError):
    """
    A well-formed update cannot be applied to this table; `field` names it once known, as in `updates[3]`.

    The text is the Java reference implementation's, without the field in front, because clients compare it.
    """

    kind = "ValidationException"

    def __init__(self, message: str) -> None:
        super().__init__(message[:_TEXT_CHARS_MAX])


class IllegalArgumentError(InvalidUpdateError):
    """What the reference implementation refuses as an argument of its own functions: clients expect that class."""

    kind = "IllegalArgumentException"


class CorruptMetadataError(GatewayError):
    """The metadata a table has now is not table metadata: no request can be judged against it."""
