# SPDX-License-Identifier: Apache-2.0
"""
Judges recorded decisions again: with other policies (`replay.py`), or to explain one of them (`explaining.py`).

`recorded.py` reads decisions from the log, `variables.py` makes the variables of policies from what was recorded, with
`findings.py` what detection knew then; `comparing.py` says what a proposal changes, `evaluating.py` evaluates many
programs in processes of its own.
"""
