# SPDX-License-Identifier: Apache-2.0
"""
Read models of the log: a graph per tenant, lineage, commits, findings, metrics. Each can be rebuilt from the log.

Read `processing/projection.py` first: what a projection is, and how entries get into it. Then `processing/runner.py`
(keeps the live generations up to date) and `processing/generations.py` (rebuilds one next to the live one, compares,
switches).

What entries mean is pure: `graph/model.py` (entries to vertices and edges; the labels are in `graph/labels.py`),
`lineage/changes.py` and `lineage/runs.py` (which data set is which table, and what a run says),
`relational/counting.py` and `relational/finding_rows.py`. Each read model's own readers are next to it:
`graph/read.py`, `lineage/read.py`, and the `read_...` functions in `relational/`.

`lake/` opens files of the lake, `egress/` makes connections to hosts that tenants name; other packages use both.
"""
