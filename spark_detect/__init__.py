# SPDX-License-Identifier: Apache-2.0
"""
Finds personal data in newly committed snapshots, with Spark Structured Streaming: counts by column, never a value.

Read `planning/batches.py` first: what is worked on, and why nothing is lost or repeated. Then follow a batch:
`planning/planner.py` and `planning/tables.py` (which files of which snapshots; the rules are in
`planning/snapshots.py`), `files/parquet_scan.py` (one task, in an executor), `recording/recorder.py` (into the log;
`recording/groups.py` makes the groups, with the guard of `marks.py`).

`driver/` is Spark: `source.py` and `query.py` are what Spark sees, `process.py` and `supervise.py` keep it running.
What personal data looks like is in `classify/`.
"""
