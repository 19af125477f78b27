"""
Checks that a log which by its origin goes on from another says so, with what that one's signer had signed last.

Looked at last, behind all other rules: what the first entry says counts once it is known to be the first entry.
"""

from __future__ import annotations

from ledger.errors import BrokenError, Fault, FormatError
from ledger.recovering.continuation import check_continuation, predecessor_origin
from ledger.signing.key_history import KeyHistory
from ledger.verify.trusted import Trusted, every_key


def check_continued(first_entry: bytes, trusted: Trusted, *, origin: str, where: str) -> None:
    """
    Check the first entry of the log `origin`: it names the log before, or there was none.

    Raises:
        BrokenError: if it does not, or no key that is trusted has signed the note that it carries; its index is 0.
    """
    before = predecessor_origin(origin)
    try:
        found = check_continuation(first_entry, every_key(trusted, before or origin))
        if found is not None and isinstance(trusted, KeyHistory):  # only now is it known at which size
            check_continuation(first_entry, trusted.keys_for(found.signed.origin, found.signed.size))
    except (BrokenError, FormatError) as error:
        fault = error.fault if isinstance(error, BrokenError) else Fault.ENTRY
        expected = f"what {before} had signed last" if before else "the first entry of a log that goes on from none"
        raise BrokenError(fault, where=where, expected=expected, found=error, index=0) from error
