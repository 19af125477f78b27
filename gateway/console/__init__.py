# SPDX-License-Identifier: Apache-2.0
"""
What people see in a browser, as files in `static/` without a build step or a dependency.

`proof.mjs` checks what a log has signed, `evidence.mjs` whole evidence bundles. `verifier_page.py` makes the page of
them that an auditor keeps as one file.
"""
