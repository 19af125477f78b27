"""
The errors of the composition root: one root; every message is one sentence that ends with what to do.
"""

from __future__ import annotations


def first_of_group(error: Exception) -> Exception:
    """
    Return what a task group was ended by: the first error of a group, however deep; any other error itself.
    """
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class LakeproofError(Exception):
    """Root of everything `lakeproof` raises on purpose; the command line prints its message and exits with 1."""


class SettingsError(LakeproofError):
    """A variable, a key of lakeproof.toml or a value is not one we know."""


class AgeError(LakeproofError):
    """Apache AGE cannot be had on this machine, or its unpacked copy is not what was fetched."""


class ServerError(LakeproofError):
    """The PostgreSQL server cannot be started, reached or used."""


class ProvisionError(LakeproofError):
    """The database cannot be brought up to date, or it belongs to another installation."""


class SchemaChangedError(LakeproofError):
    """Schema, roles, grants or settings of the database are not what the system log has recorded of them."""
