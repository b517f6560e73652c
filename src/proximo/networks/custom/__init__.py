"""Custom networks: made from the user's code, wrapped, and checked before training."""
