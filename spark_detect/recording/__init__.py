# SPDX-License-Identifier: Apache-2.0
"""
From the results of tasks to groups in the log.
"""
