# SPDX-License-Identifier: Apache-2.0
"""
The embedded PostgreSQL server with Apache AGE, and what makes it.

Read `server.py` first: it starts, attaches to and stops the server, and checks a PostgreSQL of the user's. `age.py`
fetches Apache AGE, `directories.py` says where the server's files lie, `account.py` as whom it runs where we are root.
"""
