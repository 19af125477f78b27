# SPDX-License-Identifier: Apache-2.0
"""
From entries of the logs to tasks: batches, what their entries name, and which files have to be scanned.
"""
