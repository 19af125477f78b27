"""
What people edit: policies, access rules, catalogs, API keys, tenants.

Read `aggregates.py` first: what each of them is and what its events do to it. `application.py` holds the operations
that routes and commands call, `limits.py` what they accept. `gateway.control` folds the same events into what is in
force.
"""
