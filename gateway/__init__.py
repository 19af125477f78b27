"""
The gateway: engines use it as their Iceberg REST catalog, and every commit is judged and recorded on its way.

Read `commit_flow.py` first: fourteen numbered steps in prose, then in code. Then `judgement.py` (what rules say),
`records.py` (what the log holds of a commit) and `catalogs/` (how a change happens). `app.py` and the `*_routes.py` are
the thin HTTP face; `house.py` names the parts that are handed around. `metadata/` and `policy/` are packages of their
own; `control.py` is what is in force, `admin/` how it is edited, `identity/` who is calling.
"""
