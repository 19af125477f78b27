"""
The lake itself, as far as readers of the log have to reach it: the files that entries name, and the secrets for that.

`storage.py` opens what a location names with what a catalog's options say; `secrets.py` keeps what those options only
name. Here, because both streams and detection read files, and neither may import the other.
"""
