"""Measurements: each module prints tables and writes `bench/results/<name>.json`. Run with `python
-m bench.<name>`.
"""
