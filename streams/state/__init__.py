# SPDX-License-Identifier: Apache-2.0
"""
What the streams keep in PostgreSQL: leases, cursors, the outbox, dead letters, deferred messages, and their metrics.
"""
