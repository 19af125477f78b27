# SPDX-License-Identifier: Apache-2.0
"""Histories for the tests of the projections."""
