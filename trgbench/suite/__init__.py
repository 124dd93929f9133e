"""What stands around asv: choosing what to run, running it, publishing it safely, and the headline figures.

`python -m trgbench.suite quick` is what `make bench` runs. This package reads what asv knows about the
benchmarks and imports none of them; it alone imports asv.
"""
