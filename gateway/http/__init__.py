# SPDX-License-Identifier: Apache-2.0
"""
The gateway over HTTP: the application, its routes, and the server that reads requests from the wire (`server/`).
"""
