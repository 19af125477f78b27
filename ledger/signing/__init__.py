# SPDX-License-Identifier: Apache-2.0
"""
Signs the logs: the signer of checkpoints, and the directory that holds its keys and last notes.

Read `signer.py` first. `rotation.py` is the lifecycle of its keys, and `format/key_history.py` how an auditor follows
it.
"""
