"""`trgbench gate`: is one commit slower than another? See `run.compare` for Python.

The two packages take turns on the same CPU, in pairs of processes, so that a drift of the machine falls on
both; what looks worse is measured again in fresh ones, and only that decides. docs/gate.md tells how well it
works.
"""
