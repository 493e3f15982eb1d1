"""One folder for each SDK: how its streams are read and closed, and how its models are called.

Only these folders import an SDK, and only when an object of that SDK is there.
"""

from typing import TYPE_CHECKING

from monitor._util.lazy import lazy_names

if TYPE_CHECKING:
    from monitor.adapters.provider_forms import to_form as to_form
else:  # a type checker that read this would believe that every name is there
    __all__, __getattr__, __dir__ = lazy_names(__name__)
