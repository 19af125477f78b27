# SPDX-License-Identifier: Apache-2.0
"""
Witnesses (C2SP tlog-witness): independent parties that cosign a checkpoint once they have checked that it extends the
one before.

Read `rules.py` first: what a witness cosigns, pure. `witness.py` stores what was cosigned on the disk (`store.py`)
before it is sent, and `server.py` serves it over HTTP, with bounded connections. `client.py` requests cosignatures
(`format/cosignature.py`) from the witnesses of a policy (`format/witness_policy.py`).
"""
