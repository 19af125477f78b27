"""
Finds out what became of decisions whose outcome is unknown, and records it.

`reconciler.py` is the loop, `outcome_proof.py` the rule by which the state of a foreign catalog proves an outcome.
"""
