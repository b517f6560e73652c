"""Reports about one or many runs: one HTML page."""

from proximo.report.build import Report, write_report

__all__ = ["Report", "write_report"]
