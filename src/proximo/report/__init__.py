"""Reports about one or many runs: an HTML page, an image and a CSV table."""

from proximo.report.build import Report, write_report

__all__ = ["Report", "write_report"]
