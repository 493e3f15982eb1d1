"""Agent frameworks as rows of `bench.integrations` and `bench.close`: a module each, which has a
`FRAMEWORK`. A new module of this folder is a new row; nothing lists them.
"""
