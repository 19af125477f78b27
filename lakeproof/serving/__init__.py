# SPDX-License-Identifier: Apache-2.0
"""
The processes of `lakeproof up`.

`up.py` starts them, `supervisor.py` keeps them running, `processes.py` says which there are, `duties/` what they do.
"""
