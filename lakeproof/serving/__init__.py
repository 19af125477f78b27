# SPDX-License-Identifier: Apache-2.0
"""
The one process of `lakeproof up`: `up.py` starts its tasks, the other files hold those that are small.
"""
