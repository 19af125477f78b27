"""
The log in PostgreSQL: its SQL (`sql/`), how it is read, and the sessions that do it.

`read.py` reads entries, heads and tiles, `stored_tree.py` the tree over them. `session.py` opens connections and says
what their errors mean, `doorbell.py` tells readers that a log has grown. `log_store.py` is the log for code in threads,
and `recorder.py` keeps the aggregates that people edit. Only `queries.py` loads no driver.
"""
