# SPDX-License-Identifier: Apache-2.0
"""Handlers, tenants and processes for the tests of the streams."""
