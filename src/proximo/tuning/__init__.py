"""Searches for settings: Optuna draws trials, and many of them train in one compiled program."""
