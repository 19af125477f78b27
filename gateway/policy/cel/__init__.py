"""
CEL: from the text of an expression to a verdict. The one place that imports cel-python (and its parser and RE2).

Read `programs.py` first, then `parse.py` and `check.py` (what is refused when it is saved) and `evaluate.py` and
`functions.py` (what an expression means). Nothing here bounds time or memory: that is the worker's part.
"""
