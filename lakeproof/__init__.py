"""
The composition root: settings, the embedded PostgreSQL, provisioning, the one process, the command line.

Read `settings.py` first: its one table is everything that can be configured. Then follow a start in its order:
`age.py` fetches Apache AGE, `postgres.py` starts (or attaches to) the server that holds the log, `provision.py` brings
its database up to date. `server_room.py` says where the server's files lie, `server_account.py` as whom it runs where
we are root; `errors.py` holds what can go wrong.

This package imports all the others, and none of them imports it. Importing it loads nothing.
"""
