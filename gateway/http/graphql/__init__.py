# SPDX-License-Identifier: Apache-2.0
"""
The read API as GraphQL: tables, decisions, findings, lineage, policies, and the graph's vertices and edges, in one
request.

Guarantee: an answer has what the routes answer to the same credentials, and no more. `schema.py` has what may be asked
for first, `objects.py` what may be asked of each object, `records.py` the types below. They ask the functions that the
routes ask; `arguments.py` checks what is given. `loading.py` asks the database once for all objects of one level,
whatever their number; `vertices.py` judges which vertices may be seen. `limits.py` bounds what a query may ask for
before any of it is run, and `answering.py` runs it.
"""
