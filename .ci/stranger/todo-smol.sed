# The example is written for smol.
