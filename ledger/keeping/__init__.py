"""
Keeping checkpoints outside: where the system log's are published, so that setting everything back together is found.

Read `places.py` first: what a place is, and how one is named. `file_place.py`, `git_place.py` and `bucket_place.py` are
the three there are. `lakeproof up` publishes to them, and `verify` holds the logs against what they have.
"""
