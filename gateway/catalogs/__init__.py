"""
Catalog adapters: how the gateway reaches the catalog behind an alias.

An adapter offers `load()` and one of two ways to make a change happen: `SwapsPointer` (the change is a guard in the
group that records it) or, for catalogs elsewhere, forwarding. `catalog.py` holds the Protocols, `builtin.py` the
catalog whose pointers are rows beside the log. `KINDS` is the one list: a new adapter is one module and one line.
"""

from __future__ import annotations

from typing import Final

from gateway.catalogs.builtin import BuiltinCatalog
from gateway.catalogs.catalog import Catalog, Change, Loaded, SwapsPointer

KINDS: Final = {"builtin": BuiltinCatalog}

__all__ = ["KINDS", "BuiltinCatalog", "Catalog", "Change", "Loaded", "SwapsPointer"]
