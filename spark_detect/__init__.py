"""
Personal data in newly committed snapshots, found by Spark Structured Streaming.

Nothing lives here yet. What will reads triggers and settled commits from the log, scans the files that a snapshot
added, and appends counts per column and kind, never a value.
"""
