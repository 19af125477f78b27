"""
Policies and access rules: CEL expressions over the content of a commit, judged in a process of their own.

Read `engine.py` first: what a program and a verdict are, and the Protocol behind which the engine stands. Then
`variables.py` (what an expression can see), `decide.py` and `access.py` (what follows from the verdicts).

`pool.py` is the half of the engine in the gateway's process, `worker.py` the half in the child process, and `cel/` the
one place that imports cel-python. The gateway's own process never imports it.
"""
