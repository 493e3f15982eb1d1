"""The conversation as the model is shown it: always valid, and never larger than it must be. No model, no clock, no I/O."""

from monitor.context.history import Committed as Committed
from monitor.context.history import History as History
from monitor.context.history import HistoryEdit as HistoryEdit
from monitor.context.history import Stale as Stale

__all__ = ["Committed", "History", "HistoryEdit", "Stale"]
