# SPDX-License-Identifier: Apache-2.0
"""Real engines for the tests: each in a process of its own, configured as docs/engines.md says."""
