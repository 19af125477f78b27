"""
Connections to places that somebody else has named: a catalog's `uri`, its `s3.endpoint`, a webhook.

Guarantee: every such connection goes to an address that `rules.py` has checked, the very address that is connected to.
A name is resolved once for each connection, so a name server that answers differently the second time changes nothing.

`addresses.py` knows what an address is (public, private, or of a machine's own services), `rules.py` what the operator
allows; both are pure. `connecting.py` resolves, checks and connects; `client.py` does it for httpx, `proxy.py` for
libraries that connect by themselves.
"""
