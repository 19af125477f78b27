# SPDX-License-Identifier: Apache-2.0
"""
The lake as far as readers of the log need it: the files that entries name, and the secrets for them.

`storage.py` opens what a location names, as a catalog's options say; `secrets.py` keeps the secrets that those options
name. Both streams and detection read files, and neither may import the other, so this is here.
"""
