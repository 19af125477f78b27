# SPDX-License-Identifier: Apache-2.0
"""
The gateway: engines use it as their Iceberg REST catalog, and every commit is judged and recorded on its way.

Read `commit/commit_flow.py` first: its numbered steps in prose, then in code. Folders import downwards only:

    http/  reconcile/       routes and server; settles decisions whose outcome is unknown
    guard_replay.py         the guarded rows, made again from the log
    commit/                 the commit flow and what it alone is made of
    admin/                  how the control plane is edited
    identity/               who is calling
    control/                the policies, access rules, catalogs and keys in force
    catalogs/               how a change happens in the catalog behind an alias
    mutations.py            a requested change, parsed
    policy/                 CEL: access rules and policies, evaluated in processes of their own
    metadata/               Iceberg table metadata: requirements, updates, files
    files/                  new files on the disk of this machine
    identifiers.py          names in requests; database.py: connections, by role
    console/                pages: files for browsers, and the verifier that auditors keep
    child_python.py         how processes of policies and files are started
    errors.py               what clients are answered; log_errors.py: the log's errors as these
"""
