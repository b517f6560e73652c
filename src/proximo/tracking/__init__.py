"""Metrics of a training: their rows, histograms, and the trackers that store or show them."""
