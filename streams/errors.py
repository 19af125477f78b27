"""
The errors of the streams: one root, and the cases that somebody acts on differently.
"""

from __future__ import annotations


class StreamError(Exception):
    """Root of everything `streams` raises on purpose."""


class PoisonError(StreamError):
    """A message can never be handled, however often it is tried: it goes to the dead letters, with this reason."""


class TransientError(StreamError):
    """Something that is needed is away for a moment: the same message is tried again, nothing is lost."""


class UnansweredError(TransientError):
    """A host that others run did not answer, or not in time. It is asked again some times, and not for ever."""
