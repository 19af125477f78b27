# SPDX-License-Identifier: Apache-2.0
"""Whole installations for the tests across packages."""
