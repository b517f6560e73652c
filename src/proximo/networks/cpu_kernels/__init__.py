"""Operations that XLA's CPU backend computes slowly, with gradients written by hand: matrix products,
convolutions, and the scan of gated cells. On other platforms, products and convolutions are XLA's own."""
