"""Gemini's contents."""
