# SPDX-License-Identifier: Apache-2.0
"""
How the control plane is edited: policies, access rules, catalogs, API keys, settings.

`application.py` holds the operations that routes and commands call, `limits.py` what they accept. What is edited, and
what its events do to it, is in `gateway.control`.
"""
