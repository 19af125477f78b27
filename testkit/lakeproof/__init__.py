# SPDX-License-Identifier: Apache-2.0
"""Installations and machines for the tests of the commands and of the embedded server."""
