"""Ordinary environments: anything that speaks Gymnasium, stepped on the host into the rows that the learner reads."""
