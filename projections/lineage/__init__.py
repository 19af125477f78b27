# SPDX-License-Identifier: Apache-2.0
"""
Lineage: OpenLineage events on their way into the log, and the read model of what was made from what.

Two packages receive lineage, the gateway over HTTP and the streams from a Kafka topic, and neither imports the other,
so it is here. Read `ingest.py` first (bytes in, groups out), then `projection.py`: which data set is which table
(`datasets.py`), what a run says (`runs.py`), which edges are drawn (`edges.py`). `cycle_events.py` reports refused
edges in the log. All but `edges.py`, `projection.py`, `read.py` and `cycle_events.py` are pure.

The OpenLineage schemas below `schemas/` are those of its specification, unchanged, Apache-2.0 (`schemas/NOTICE`).
"""

from __future__ import annotations
