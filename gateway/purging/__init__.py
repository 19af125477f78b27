# SPDX-License-Identifier: Apache-2.0
"""
The files of tables that were dropped with a purge, deleted in the background.

Read `purger.py` first, then `sweep.py`.
"""
