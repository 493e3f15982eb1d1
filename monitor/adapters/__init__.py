"""One folder for each SDK: how its streams are read and closed, and how its models are called.

Only these folders import an SDK, and only when an object of that SDK is there.
"""

from monitor.adapters.forms import to_form as to_form

__all__ = ["to_form"]
