# SPDX-License-Identifier: Apache-2.0
"""
New files on the disk of this machine: durable once they are written, whatever fails in between.

`writing.py` has the steps of a write. Gateway processes have them done by a process of their own (`file_process.py`
starts it and sends it files, `writing_process.py` is what it runs); other processes, in threads (`local_files.py`).
"""
