# SPDX-License-Identifier: Apache-2.0
"""The parsers that are fuzzed, with their seeds."""
