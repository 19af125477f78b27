# SPDX-License-Identifier: Apache-2.0
"""
What `lakeproof status`, `lakeproof doctor` and `lakeproof catalogs check` look at. Nothing here changes anything.

Read `status.py` first: what runs and how it is. `doctor.py` has the checks, each a function, that say what is wrong and
what to do. Both work while nothing runs: `database.py` reaches the database without starting or provisioning it, and
`processes.py` finds the processes by the folders that `lakeproof up` has in the home.
"""
