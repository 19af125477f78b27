# SPDX-License-Identifier: Apache-2.0
"""
Access rules that are policies in Cedar: what they see of a request, and what they say of it.

`requests.py` and `schema.py` are pure. `policies.py` alone imports cedarpy, which the extra `cedar` installs; it runs
in the policy engine's child processes, as all that tenants write does.
"""
