"""Training: the loop, seeds, callbacks, interrupts; ``train`` and ``resume``."""
