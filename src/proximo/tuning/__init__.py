"""Searches for settings: Optuna draws trials from a declared space, and many of them train in one compiled program."""
