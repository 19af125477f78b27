"""
What lies outside PostgreSQL: files, and answers of other servers.

`directory.py` reads an exported log. `private_files.py` writes files that survive a crash and that only their owner
reads. `regular_file.py` opens files that others have made. `bounded_http.py` asks over HTTP, within limits.
"""
