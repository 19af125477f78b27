# SPDX-License-Identifier: Apache-2.0
"""
How the Appender writes: from waiting callers to a COMMIT that is answered.

Read `appender.py` first: what it promises its callers. `writer.py` runs one transaction after another, and opens the
next one behind the COMMIT of the last. `queue.py` holds the groups that wait, `batch.py` is one transaction, statement
by statement, in two round trips, and `at_once.py` is one in a single round trip; `known_heads.py` has what that takes.
`wire.py` sends statements and receives rows. The rules that decide what happens to a group are pure and live in
`format/sequence.py`.
"""
