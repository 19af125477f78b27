# SPDX-License-Identifier: Apache-2.0
"""Logs, signers, witnesses and broken connections for the tests of the log."""
