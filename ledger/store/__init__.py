# SPDX-License-Identifier: Apache-2.0
"""
The log in PostgreSQL: its SQL (`sql/`), how it is read, and the sessions that read it.

`read.py` reads entries, heads and tiles, `stored_tree.py` computes on the stored tree. `session.py` opens connections
and classifies their errors. `notifications.py` tells readers that a log has grown. `log_store.py` is the log for worker
threads, and `recorder.py` stores the aggregates that users edit. `roles.py` names the database roles. Only `queries.py`
and `roles.py` load no driver.
"""
