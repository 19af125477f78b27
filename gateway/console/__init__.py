# SPDX-License-Identifier: Apache-2.0
"""
The console: pages for people, made on the server, at `/console`; and what browsers check proofs with.

Read `pages.py` first: one function for each page. `logins.py` lets people in, with `one_time.py` for links;
`sessions.py` keeps who is logged in, `rendering.py` makes pages from templates, `lists.py` has what is also JSON and
CSV. Files in `static/` have no build step and no dependency: `proof.mjs` checks what a log has signed, `checking.mjs`
an entry's page with it, `evidence.mjs` whole evidence bundles. `verifier_page.py` makes the page of them that an
auditor keeps as one file.
"""
