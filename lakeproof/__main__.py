# SPDX-License-Identifier: Apache-2.0
"""`python -m lakeproof` is `lakeproof`."""

from lakeproof.cli import main

if __name__ == "__main__":
    main()
