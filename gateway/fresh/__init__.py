# SPDX-License-Identifier: Apache-2.0
"""
What every request must know as of now, read for all that wait in one round trip.

Read `reads.py` first: one question at a time is with the database, and what arrives meanwhile is the next one.
`questions.py` has what can be asked, the statements of a question, and its answer.
"""

from gateway.fresh.questions import Fresh, Pointer, Question, TableRow
from gateway.fresh.reads import FreshReads

__all__ = ["Fresh", "FreshReads", "Pointer", "Question", "TableRow"]
