"""`python -m trgbench.engine` compiles the engine's second tier now, and says where it is kept.

It is compiled anyway, in the background, when the runs of the first tier have cost as much.
"""

from trgbench.engine import kernels

if __name__ == "__main__":
    print(kernels.build())
