# SPDX-License-Identifier: Apache-2.0
"""
How a second process reads the log of a tenant for a replay: as this one does.
"""

from __future__ import annotations

from uuid import UUID

from gateway.replaying.page_process import Access
from lakeproof.services import Services


def page_access(services: Services, tenant: UUID) -> Access:
    """
    Return the access that a tenant's role has, and the keys of this home.
    """
    installation = services.installation
    return Access(
        dsn=installation.dsn,
        role=services.gateway.roles.tenant(tenant),
        key_folder=str(installation.subject_keys.absolute()),
        key_encryption=str(installation.key_encryption_key.absolute()),
    )
