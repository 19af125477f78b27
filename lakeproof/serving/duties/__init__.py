# SPDX-License-Identifier: Apache-2.0
"""
The duties of `lakeproof up`, one file each: a coroutine that works on services until it is told to stop.

`lakeproof up` gives each a process (`serving/up.py`); tests and the scene run all of them in one (`in_process.py`).
"""
