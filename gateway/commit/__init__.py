# SPDX-License-Identifier: Apache-2.0
"""
The commit flow, from a request to a change and its record, and the modules that only it uses.

Read `commit_flow.py`: it names the steps and calls them in order. `gateway.py` holds the parts of a gateway process,
`judgement.py` asks the policy engine, `events.py` makes the log's events, `swapping.py` and `forwarding.py` make the
change.
"""
