"""
Who is calling: credentials in, a verified principal of one tenant out.

Read `authenticator.py` first; `principal.py` is what comes out. `api_keys.py` is the text of a key and its slow hash,
`key_macs.py` its keyed hash, `key_rows.py` the rows behind them and the actors of identities. What bounds a flood of
wrong keys: `key_lookups.py` (one look-up for many), `slow_checks.py` (few slow hashes), `refusal_pace.py` (answers).
"""

from gateway.identity.authenticator import Authenticator
from gateway.identity.principal import Principal, PrincipalSource

__all__ = ["Authenticator", "Principal", "PrincipalSource"]
