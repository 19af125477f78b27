"""
The errors of whoever signs: each says what to do.
"""

from __future__ import annotations

from ledger.errors import LedgerError


class KeyDirectoryError(LedgerError):
    """The signer's directory, one of its keys or its notes cannot be used."""


class BusyKeyDirectoryError(KeyDirectoryError):
    """Another process is signing with this directory right now."""


class KeyUnavailableError(LedgerError):
    """What holds a private key does not sign with it now: nothing is damaged, and it is asked again."""


class RotationError(LedgerError):
    """The keys are not at a point of their life where this can be done."""
