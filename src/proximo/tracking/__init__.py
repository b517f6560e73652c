"""Metrics of a training: their rows, histograms, and the sinks that store or show them."""
