# SPDX-License-Identifier: Apache-2.0
"""
Determines the outcome of open decisions whose process did not record it.

`reconciler.py` is the loop, `schedule.py` says which process checks which key and when, `evidence.py` reads the log,
`outcome_proof.py` has the rules by which the state of a foreign catalog proves an outcome.
"""
