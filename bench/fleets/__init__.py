"""The engines of `python -m bench.fleet`: a module for each, with an `ENGINE` or several in
`ENGINES`. Run as a program, it is a worker.
"""
