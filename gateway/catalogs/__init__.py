"""
Catalog adapters: how the gateway reaches the catalog behind an alias.

An adapter offers what any `Catalog` does and one of two ways to make a change happen: `SwapsPointer` (the change is a
guard in the group that records it) or `Forwards` (the change is asked of a catalog elsewhere). `catalog.py` holds the
Protocols, `builtin.py` the catalog whose pointers are rows beside the log, `rest.py` any that speaks Iceberg's REST
protocol. `KINDS` is the one list: a new adapter is one module and one line.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from gateway.catalogs.builtin import BuiltinCatalog
from gateway.catalogs.catalog import (
    Catalog,
    Change,
    Configuration,
    Forwards,
    Loaded,
    Outgoing,
    Page,
    Snapshots,
    SwapsPointer,
)
from gateway.catalogs.onward import Onward
from gateway.catalogs.replies import Outcome, outcome_of
from gateway.catalogs.rest import RestCatalog

BUILTIN: Final = "builtin"
REST: Final = "rest"
LOOK_ALIKES: Final = "look-alike-names"
LOOK_ALIKES_ALLOWED: Final = "allowed"
"""The option by which a catalog's names may be such as people take for each other."""
KINDS: Final = {BUILTIN: BuiltinCatalog, REST: RestCatalog}

Adapter: TypeAlias = SwapsPointer | Forwards

__all__ = [
    "BUILTIN",
    "KINDS",
    "LOOK_ALIKES",
    "LOOK_ALIKES_ALLOWED",
    "REST",
    "Adapter",
    "BuiltinCatalog",
    "Catalog",
    "Change",
    "Configuration",
    "Forwards",
    "Loaded",
    "Onward",
    "Outcome",
    "Outgoing",
    "Page",
    "RestCatalog",
    "Snapshots",
    "SwapsPointer",
    "outcome_of",
]
