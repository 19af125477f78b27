# SPDX-License-Identifier: Apache-2.0
"""
Policies and access rules: CEL expressions over the content of a commit, evaluated in child processes.

Read `engine.py` first: programs, verdicts, and the Protocol of the engine. Then `variables.py` (the variables of an
expression), `judging.py` and `access.py` (the decision that follows from the verdicts).

`pool.py` is the engine's part in the gateway's process, `worker.py` its part in the child process. Only `cel/` imports
cel-python; the gateway's own process never does.
"""
