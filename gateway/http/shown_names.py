# SPDX-License-Identifier: Apache-2.0
"""
What a list shows: those of its names that the caller may see, which is to load them, or to learn that they exist.

To list a namespace is a right of its own, which has been checked before. What is left out is neither recorded nor
counted: the answer is that of a namespace without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.commit.judgement import HAVE_UUID, Judge
from gateway.control.plane import ControlState
from gateway.identifiers import Target
from gateway.identity import Principal
from gateway.policy.variables import CommitView

SEEN_BY: Final[Mapping[str, Sequence[str]]] = {
    "table": ("exists", "load"),
    "view": ("exists", "load"),
    "function": ("load",),
    "namespace": ("exists", "load"),
}
"""One of which a caller has to be permitted to see a name, by its kind. Who may list a namespace may see it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNames:
    """What `caller` may see of one `kind` below `parent`, by the rules in `state`; a `Keep` of catalogs."""

    judge: Judge
    state: ControlState
    caller: Principal
    parent: Target
    kind: str

    @property
    def reads_uuids(self) -> bool:
        """See `Keep.reads_uuids`."""
        return self.state.reads_uuid

    async def __call__(self, names: Sequence[Any], uuids: Sequence[str | None]) -> list[bool]:
        """See `Keep`."""
        if names and not self.state.reads_names and not self.state.asks_each_check:
            return await self._shown(names[:1], uuids[:1]) * len(names)
        return await self._shown(names, uuids)

    async def _shown(self, names: Sequence[Any], uuids: Sequence[str | None]) -> list[bool]:
        shown = [False] * len(names)
        known = uuids if self.reads_uuids and self.kind in HAVE_UUID else [""] * len(names)
        # By rules that do not read the operation, one read is as another.
        tells_apart = self.state.reads_operation or self.state.asks_each_check
        for verb in SEEN_BY[self.kind] if tells_apart else SEEN_BY[self.kind][:1]:
            hidden = [place for place, is_shown in enumerate(shown) if not is_shown]
            views = [self._view(names[place], verb) for place in hidden]
            found = await self.judge.sees(self.state, self.caller, views, [known[place] for place in hidden])
            for place, is_shown in zip(hidden, found, strict=True):
                shown[place] = is_shown
        return shown

    def _view(self, name: Any, verb: str) -> CommitView:
        is_namespace = self.kind == "namespace"
        return CommitView(
            catalog=self.parent.alias,
            namespace=tuple(name) if is_namespace else self.parent.namespace,
            name="" if is_namespace else name,
            kind=self.kind,
            operation=f"{self.kind}.{verb}",
        )
