# SPDX-License-Identifier: Apache-2.0
"""
Authentication: credentials in, a verified principal of one tenant out.

Read `authenticator.py` first; `principal.py` is its result. `token_logins.py` verifies tokens: `tokens.py` reads them,
`signatures.py` checks their signatures, `issuers.py` has the identity providers and what their claims mean,
`key_sets.py` their keys, and `bound_issuers.py` both; `access_tokens.py` has the tokens of this installation. People
log in with `code_logins.py` at a `provider.py`, where the console is one of `login_clients.py`; `provider_urls.py`
checks what its discovery document says. `certificate_logins.py` knows callers by client certificates, which
`client_certificates.py` reads, and `passed_certificates.py` verifies where a proxy has sent them; `logins.py` has the
actors of callers whom others vouch for, `setting_tables.py` reads the files in which the operator describes such
callers. `api_keys.py` has the text of a key and its slow hash, `key_macs.py` its keyed hash, `key_rows.py` the rows of
keys and the actors of identities. Three modules bound a flood of wrong keys: `key_lookups.py` (batched lookups),
`slow_checks.py` (few slow hashes), `refusal_pace.py` (delayed answers).
"""

from gateway.identity.authenticator import Arrived, Authenticator, Credentials
from gateway.identity.principal import Principal, PrincipalSource

__all__ = ["Arrived", "Authenticator", "Credentials", "Principal", "PrincipalSource"]
