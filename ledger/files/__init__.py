# SPDX-License-Identifier: Apache-2.0
"""
What lies outside PostgreSQL: files, and HTTP requests to other servers.

`directory.py` reads an exported log. `atomic.py` replaces and creates files so that they survive a crash, and
`private_files.py` keeps them readable for their owner only. `regular_file.py` opens files that others have made.
`bounded_http.py` sends requests whose responses are bounded.
"""
