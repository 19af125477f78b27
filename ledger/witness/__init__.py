"""
Witnesses (C2SP tlog-witness): others who cosign what a log signed, once they have seen that it goes on.

Read `rules.py` first: what a witness cosigns, pure. `witness.py` keeps what was cosigned on the disk before it leaves
(`store.py`), and `server.py` puts it on HTTP, over connections that are bounded. `client.py` asks the witnesses of a
policy (`format/witness_policy.py`) for their cosignatures (`format/cosignature.py`).
"""
