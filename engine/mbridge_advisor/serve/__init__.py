"""The operations as an HTTP service and as an MCP server. Both need an extra: ``http`` or ``mcp``.

``operations`` answers one call, JSON in and JSON out, and is all that knows the advisor. ``pool`` has calls answered by
worker processes (``worker``), ``guard`` stands before every HTTP request, ``http`` and ``mcp`` are the two faces.

Nothing here reads a file that a caller names, reaches the network, launches a job, or keeps a call.
"""
