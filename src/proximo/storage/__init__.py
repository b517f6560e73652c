"""Run directories and checkpoints: writing them atomically, finding them again, verifying them."""
