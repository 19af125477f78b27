# SPDX-License-Identifier: Apache-2.0
"""
The errors of the streams: one root, and the cases that a caller acts on differently.
"""

from __future__ import annotations


class StreamError(Exception):
    """Root of everything `streams` raises on purpose."""


class PoisonError(StreamError):
    """A message can never be handled, however often it is tried: it becomes a dead letter with this reason."""


class TransientError(StreamError):
    """Something is unavailable for the moment: the same message is tried again, and nothing is lost."""


class UnansweredError(TransientError):
    """A third-party host did not answer, or not in time. It is retried, with a limit."""
