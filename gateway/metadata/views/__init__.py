# SPDX-License-Identifier: Apache-2.0
"""
Iceberg view metadata (view specification, version 1): what a commit requires of it and what its updates make of it.

Pure, like the package around it, and on the JSON itself: members that are not known here survive. Rules and error texts
are those of the Java reference implementation.
"""

from gateway.metadata.views.apply import apply_view_updates, create_view_updates
from gateway.metadata.views.draft import check_view_metadata, version_in_force
from gateway.metadata.views.parse import check_view_requirements, parse_view_requirements, parse_view_updates

__all__ = [
    "apply_view_updates",
    "check_view_metadata",
    "check_view_requirements",
    "create_view_updates",
    "parse_view_requirements",
    "parse_view_updates",
    "version_in_force",
]
