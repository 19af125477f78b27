# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/{prefix}/events`: what was changed in a catalog, in the log's order, to go on reading from where one was.

It follows a proposal, apache/iceberg pull request 12584 at commit 66c3ce085a (2026-08-12), and changes with it; the
Iceberg REST specification does not have it. Read `page.py` first. `query.py` parses the request, `tokens.py` has the
continuation tokens, `made.py` reads from the log what was made, and has the form of an event.
"""
