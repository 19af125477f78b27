# SPDX-License-Identifier: Apache-2.0
"""
What the log and the read models say, for one caller: entries, decisions, findings, tables, lineage.

Guarantee: what a caller may not see is not there. It is not shown, not counted, and not told apart from what does not
exist. `sight.py` judges that, by the access rules in force. `query.py` parses what is asked for, `cursors.py` has the
texts with which a list is continued, `reading.py` bounds what a request may cost.
"""
