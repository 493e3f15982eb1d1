"""Repetition in streamed text: one rule a file, joined by `ContentRepetition`."""

from monitor.detectors.text.channel import InformationRule
from monitor.detectors.text.chant import WindowRule
from monitor.detectors.text.content_repetition import ContentRepetition
from monitor.detectors.text.counted import CountedRule
from monitor.detectors.text.recurrence import RecurrenceRule
from monitor.detectors.text.tail import TailRule

__all__ = ["ContentRepetition", "CountedRule", "InformationRule", "RecurrenceRule", "TailRule", "WindowRule"]
