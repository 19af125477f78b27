# SPDX-License-Identifier: Apache-2.0
"""
Repairs a log whose database has lost signed entries.

Read `recover.py` first. It replays the lost entries from an export (`replay.py`), and lets a signer that has lost its
notes adopt the checkpoints in the database. Without an export, `successor.py` closes the log and starts its successor;
`format/continuation.py` derives from origins and first entries which log continues which.
"""
