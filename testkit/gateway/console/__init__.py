# SPDX-License-Identifier: Apache-2.0
"""What tests of the pages need: the modules in Node, and a real browser."""
