# SPDX-License-Identifier: Apache-2.0
"""
Iceberg table metadata: what a commit requires of it and what its updates make of it, on the JSON itself.

Pure: metadata in, metadata out; no clock, no files, no network. Input is never changed, and members that are not known
here survive. Rules and error texts are those of the Java reference implementation, which clients compare.

Read `apply.py` first: its table names the function of each update. `requirements.py` has the nine requirements,
`parse.py` what a well-formed update is, `create.py` turns a createTable into updates, `actions.py` names what they do.

    updates = parse_updates(body.get("updates"))
    requirements = parse_requirements(body.get("requirements"))
    check_requirements(metadata, requirements)
    result = apply_updates(metadata, updates, now_ms=now_ms, base_location=metadata_location)
"""

from gateway.metadata.actions import added_snapshot_ids, commit_actions
from gateway.metadata.apply import apply_updates
from gateway.metadata.create import create_updates
from gateway.metadata.draft import Metadata, Update, known_uuid, to_sorted_json, uuid_of
from gateway.metadata.errors import CorruptMetadataError, InvalidUpdateError, TableExistsError
from gateway.metadata.parse import parse_updates
from gateway.metadata.requirements import ASSERT_CREATE, Requirement, check_requirements, parse_requirements

__all__ = [
    "ASSERT_CREATE",
    "CorruptMetadataError",
    "InvalidUpdateError",
    "Metadata",
    "Requirement",
    "TableExistsError",
    "Update",
    "added_snapshot_ids",
    "apply_updates",
    "check_requirements",
    "commit_actions",
    "create_updates",
    "known_uuid",
    "parse_requirements",
    "parse_updates",
    "to_sorted_json",
    "uuid_of",
]
