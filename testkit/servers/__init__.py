# SPDX-License-Identifier: Apache-2.0
"""Real servers and simulators on loopback."""
