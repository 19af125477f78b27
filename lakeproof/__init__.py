# SPDX-License-Identifier: Apache-2.0
"""
The composition root: settings, the embedded PostgreSQL, provisioning, the one process, the command line.

Read `settings.py` first: everything that can be configured. Then follow a start in its order: `postgres/` fetches
Apache AGE and starts (or attaches to) the server that holds the log, `provision.py` brings its database up to date,
`serving/` runs what `lakeproof up` does. `errors.py` holds what can go wrong.

This package imports all the others, and none of them imports it. Importing it loads nothing.
"""
