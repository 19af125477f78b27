# SPDX-License-Identifier: Apache-2.0
"""
What the access rules in force would decide, asked without making a request: who may do something, and what someone may
do (`questions.py`).

`rule_lint.py` finds rules that do nothing: proven for every request (`exact/`), or else tried on the requests of
`rule_space.py` and the names of `names.py` (`rule_trial.py`).

Every answer comes from `Judge.ask`: the engine and the functions that judge requests. `requests.py` has the operations
that can be asked about and what a target names, `callers.py` the callers that there are.
"""
