"""
Personal data in newly committed snapshots, found by Spark Structured Streaming: counts by column, never a value.

Read `batches.py` first: what is worked on, and why nothing is lost or repeated. Then the way of a batch: `planner.py`
and `tables.py` (which files of which snapshots; the rules in `plan.py`), `scan.py` (one task, in an executor),
`recorder.py` (into the log; what is said there in `record.py`, the guard in `marks.py`).

`source.py` and `query.py` are what Spark sees of it, `process.py` and `supervise.py` how it is kept running;
`worker.py` does the same without Spark. What personal data looks like is in `classify/`.
"""
