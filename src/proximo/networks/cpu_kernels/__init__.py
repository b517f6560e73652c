"""Operations whose gradients XLA's CPU backend computes slowly, with gradients written by hand.

Each equals a plain JAX expression: ``dense`` a matrix product, ``convolve`` a convolution with bias and ReLU,
``recur`` the scan of a gated cell. On other platforms, products and convolutions are XLA's own. Decisions
0003 and 0005 have the measurements.
"""
