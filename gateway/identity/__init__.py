"""
Who is calling: credentials in, a verified principal of one tenant out.

Read `authenticator.py` first. `api_keys.py` is the text and the hash of a key, `key_rows.py` the guarded rows behind
them and the actors of identities, `principal.py` what comes out.
"""

from gateway.identity.authenticator import Authenticator
from gateway.identity.principal import Principal, PrincipalSource

__all__ = ["Authenticator", "Principal", "PrincipalSource"]
