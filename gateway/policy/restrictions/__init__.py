# SPDX-License-Identifier: Apache-2.0
"""
Row filters and column masks: which rows and values of a table one caller may see, as Iceberg's REST specification has
it in `read-restrictions`.

Read `form.py` first (predicates over field ids), then `written.py` (a filter as its author wrote it) and `lowering.py`
(the one made into the other, for one caller and one schema). All of it is pure. Texts are parsed in the worker alone
(`gateway/policy/cel/row_filters.py`). Restrictions are stored and tested; no read is restricted by them yet.
"""
