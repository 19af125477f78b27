"""
The gateway over HTTP: the application, its routes, and the server that reads requests from the wire (`server/`).
"""
