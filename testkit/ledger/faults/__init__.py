# SPDX-License-Identifier: Apache-2.0
"""The fault table: each operation, with a fault at each of its steps."""
