# SPDX-License-Identifier: Apache-2.0
"""
The gateway for agents: tools and resources of the Model Context Protocol, at `/mcp`.

Read `tools.py` first: each tool asks routes of the gateway with the agent's own credentials. `server.py` speaks the
protocol with the official SDK, and `routes.py` has the route.
"""
