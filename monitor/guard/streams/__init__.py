"""Reading one stream under deadlines, and closing it so that its connection is gone.

Only this folder knows asyncio from trio.
"""
