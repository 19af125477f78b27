# SPDX-License-Identifier: Apache-2.0
"""
The control plane: the policies, access rules, catalogs, keys and settings of a tenant, as its log has them.

`aggregates.py` says what each event does to one of them; `plane.py` folds all of them into what is in force.
"""
