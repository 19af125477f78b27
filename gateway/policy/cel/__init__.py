# SPDX-License-Identifier: Apache-2.0
"""
CEL: from the text of an expression to a verdict. The one folder that imports cel-python, its parser and RE2.

Read `programs.py` first, then `parse.py` and `check.py` (what is refused on save), then `compile.py` and `functions.py`
(what an expression means). Nothing here bounds time or memory: the worker does.
"""
