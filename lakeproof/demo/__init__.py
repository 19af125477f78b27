# SPDX-License-Identifier: Apache-2.0
"""
The scene of `lakeproof demo`: real clients, a real catalog, real proofs, each step in plain words with its figures.

Read `scene.py` first: the seven steps in order. `engine.py` is what an engine does (PyIceberg over HTTP), `data.py` the
rows it writes, `api.py` what a policy author does over HTTP, `audit.py` what an auditor does offline.
"""
