"""
Lineage: OpenLineage events on their way into the log, and the read model of what was made from what.

Here rather than in the gateway because two packages receive lineage, the gateway over HTTP and streams from a Kafka
topic, and neither imports the other. Read `receiving.py` first (bytes in, groups out), then `projection.py` (which data
set is which table, which edges are drawn) and `tell.py` (edges that were not, told in the log). `openlineage.py`,
`receiving.py` and `resolving.py` are pure.

The OpenLineage schemas below `schemas/` are those of its specification, unchanged, Apache-2.0 (`schemas/NOTICE`).
"""

from __future__ import annotations
