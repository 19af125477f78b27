# SPDX-License-Identifier: Apache-2.0
"""
Decides whether there is a request for which one access rule holds and others do not: exactly, or says that it cannot.

`questions.py` begins there: it asks for each rule whether it ever holds, and whether others decide in its place.
`scenes.py` has every kind of request with what a request of it can be, `conditions.py` makes formulas of rules into
conditions on that, and `solving.py` looks for values: of texts (`texts.py`) and of lists (`lists.py`).
"""
