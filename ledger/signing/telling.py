"""
What an installation tells of itself, as groups that are appended once, however often they are told.
"""

from __future__ import annotations

from datetime import datetime

from ledger.canonical import Json
from ledger.event import SYSTEM_ACTOR, Event, derived_group_id, prepare
from ledger.events import EventData, to_data
from ledger.sequence import Group


def told(event: EventData, key: str, *, occurred_at: datetime) -> Group:
    """
    Return a group of one event by the installation itself; its id is derived from type, key and data.
    """
    data = to_data(event)
    content: Json = {"data": data, "key": key}
    prepared = prepare(
        Event(type=event.TYPE, version=event.VERSION, key=key, actor=SYSTEM_ACTOR, occurred_at=occurred_at, data=data)
    )
    return Group(id=derived_group_id(event.TYPE, content), then=(prepared,))
