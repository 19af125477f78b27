# SPDX-License-Identifier: Apache-2.0
"""
Spark: the driver process, its session and query, the data source, and the supervisor that keeps the process running.
"""
