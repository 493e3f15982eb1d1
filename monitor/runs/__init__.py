"""A whole run: the supervisor, its turns, its calls, its context, its record and its session.

Public are the groups of the supervisor's options.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.runs.option_groups import Instructions as Instructions
    from monitor.runs.option_groups import Requests as Requests
    from monitor.runs.option_groups import Results as Results
    from monitor.runs.option_groups import ToolCalls as ToolCalls
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
