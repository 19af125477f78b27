"""
The vocabulary of events: one frozen dataclass a type and version.

`EVENTS` maps (type, version) to its dataclass; `to_data` and `from_data` turn instances into canonical data and back.
Readers keep and skip what they do not know, except in the control plane (`ledger.event.is_control`), where an unknown
type or version means: refuse. Read `commits.py` first.
"""

from __future__ import annotations

from typing import Final

from ledger.events.codec import EventData, from_data, to_data
from ledger.events.commits import (
    AccessRefused,
    CallerRefused,
    CommitDecided,
    CommitSettled,
    Decided,
    Evidence,
    Identifier,
    Reason,
    Settled,
)
from ledger.events.control import (
    AccessRuleCreated,
    AccessRuleCreatedV1,
    AccessRuleRetired,
    CatalogCreated,
    CatalogRetired,
    Effect,
    KeyCreated,
    KeyCreatedV1,
    KeyRevoked,
    PolicyChanged,
    PolicyCreated,
    PolicyRetired,
    TenantCreated,
)
from ledger.events.detection import (
    AlertDelivered,
    AlertRaised,
    DetectionFound,
    DetectionKind,
    ScanCompleted,
    ScanFailed,
    ScanFault,
    ScanRequested,
)
from ledger.events.erasure import (
    ErasureReason,
    PayloadErased,
    PayloadErasedElsewhere,
    check_erased,
    erased_elsewhere,
)
from ledger.events.lineage import (
    DatasetName,
    LineageColumn,
    LineageCycleFound,
    LineageDataset,
    LineageKind,
    LineageReceived,
)
from ledger.events.operations import (
    LogContinued,
    LogsAnchored,
    MigrationApplied,
    ProjectionAttested,
    SignedTree,
    SignerCreated,
    SignerRetired,
    SignerRotated,
)
from ledger.events.places import PlaceGranted, PlaceReleased
from ledger.events.triggers import CommitObserved, TriggerReceived, TriggerSource

EVENTS: Final[dict[tuple[str, int], type[EventData]]] = {
    (event.TYPE, event.VERSION): event
    for event in (
        CommitDecided,
        CommitSettled,
        CommitObserved,
        AccessRefused,
        CallerRefused,
        LineageReceived,
        LineageCycleFound,
        TriggerReceived,
        ScanRequested,
        ScanCompleted,
        ScanFailed,
        DetectionFound,
        AlertRaised,
        AlertDelivered,
        PolicyCreated,
        PolicyChanged,
        PolicyRetired,
        AccessRuleCreated,
        AccessRuleCreatedV1,
        AccessRuleRetired,
        CatalogCreated,
        CatalogRetired,
        KeyCreatedV1,
        KeyCreated,
        KeyRevoked,
        TenantCreated,
        SignerCreated,
        SignerRotated,
        SignerRetired,
        MigrationApplied,
        ProjectionAttested,
        PayloadErased,
        PayloadErasedElsewhere,
        LogsAnchored,
        LogContinued,
        PlaceReleased,
        PlaceGranted,
    )
}

__all__ = [
    "EVENTS",
    "AccessRefused",
    "AccessRuleCreated",
    "AccessRuleCreatedV1",
    "AccessRuleRetired",
    "AlertDelivered",
    "AlertRaised",
    "CallerRefused",
    "CatalogCreated",
    "CatalogRetired",
    "CommitDecided",
    "CommitObserved",
    "CommitSettled",
    "DatasetName",
    "Decided",
    "DetectionFound",
    "DetectionKind",
    "Effect",
    "ErasureReason",
    "EventData",
    "Evidence",
    "Identifier",
    "KeyCreated",
    "KeyCreatedV1",
    "KeyRevoked",
    "LineageColumn",
    "LineageCycleFound",
    "LineageDataset",
    "LineageKind",
    "LineageReceived",
    "LogContinued",
    "LogsAnchored",
    "MigrationApplied",
    "PayloadErased",
    "PayloadErasedElsewhere",
    "PlaceGranted",
    "PlaceReleased",
    "PolicyChanged",
    "PolicyCreated",
    "PolicyRetired",
    "ProjectionAttested",
    "Reason",
    "ScanCompleted",
    "ScanFailed",
    "ScanFault",
    "ScanRequested",
    "Settled",
    "SignedTree",
    "SignerCreated",
    "SignerRetired",
    "SignerRotated",
    "TenantCreated",
    "TriggerReceived",
    "TriggerSource",
    "check_erased",
    "erased_elsewhere",
    "from_data",
    "to_data",
]
