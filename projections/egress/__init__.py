# SPDX-License-Identifier: Apache-2.0
"""
Connections to hosts that tenants name: a catalog's `uri`, its `s3.endpoint`, a webhook.

Guarantee: every such connection goes to an address that `rules.py` has checked, and exactly that address is connected
to. A name is resolved once per connection, so a name server that answers differently the second time changes nothing.

`addresses.py` classifies addresses (public, private, link-local and metadata services), `rules.py` knows what the
operator allows; both are pure. `connecting.py` resolves, checks and connects; `client.py` does so for httpx, `proxy.py`
for libraries that make their own connections.
"""
