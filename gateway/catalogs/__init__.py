# SPDX-License-Identifier: Apache-2.0
"""
Catalog adapters: how the gateway reaches the catalog behind an alias.

An adapter is a `Catalog` and has one of two ways to make a change: `SwapsPointer` (the change is a guard of the group
that records it) or `Forwards` (the change is a request to a foreign catalog). `catalog.py` holds the Protocols,
`builtin.py` the catalog whose pointers are rows of our database, `rest.py` any catalog with Iceberg's REST protocol,
`registry.py` finds the adapter of an alias.
"""
