# SPDX-License-Identifier: Apache-2.0
"""
Values of which a commit or a load makes many: the type checker keeps them as they are made.

`@value_class` is `@dataclass(frozen=True, slots=True, kw_only=True)` to whoever reads it and to mypy, which refuses an
assignment to a field. At run time a field is set as that of any other class. Where a dataclass is frozen at run time,
too, its constructor sets each field through `object.__setattr__`, which takes longer than all else that it does: a
twelfth of the instructions of a commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """
    Make `cls` a dataclass with slots and keyword-only fields, whose instances are equal and hashed by their fields,
    unless it says how they are hashed.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash="__hash__" not in vars(cls))(cls)
