"""
Witnesses (C2SP tlog-cosignature, tlog-witness, tlog-policy): who else has seen what a log signed.

Read `rules.py` first: what a witness cosigns, pure. `witness.py` keeps what was cosigned on the disk before it leaves
(`store.py`), and `server.py` puts it on HTTP, over connections that are bounded (`connections.py`); `client.py` asks
the witnesses of a policy (`policy.py`) for theirs.
"""
