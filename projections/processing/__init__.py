# SPDX-License-Identifier: Apache-2.0
"""
How entries get into read models: the `Projection` protocol, cursors, the runner, and rebuilding.

Read `projection.py` first, then `runner.py` (keeps the live generations up to date) and `generations.py` (builds one
again next to the live one, compares, switches).
"""
