# SPDX-License-Identifier: Apache-2.0
"""
The errors of the composition root: one root; every message is one sentence that ends with what to do.
"""

from __future__ import annotations


def first_of_group(error: Exception) -> Exception:
    """
    Return the error that ended a task group: the first of a group, however deep; any other error as it is.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class LakeproofError(Exception):
    """Root of everything `lakeproof` raises on purpose; the command line prints its message and exits with 1."""


class SettingsError(LakeproofError):
    """A variable or a key of lakeproof.toml is unknown, or a value is invalid."""


class AgeError(LakeproofError):
    """Apache AGE is not available for this machine, or its unpacked copy was changed."""


class ServerError(LakeproofError):
    """The PostgreSQL server cannot be started, reached or used."""


class ProvisionError(LakeproofError):
    """The database cannot be brought up to date, or it belongs to another installation."""


class SchemaChangedError(LakeproofError):
    """Schema, roles, grants or settings of the database differ from their record in the system log."""


class ProcessError(LakeproofError):
    """A process of `lakeproof up` met corruption, or cannot be started before people have changed something."""
