"""What runs have come to: one page to open from a file, a picture and a table, for one run or for many."""

from proximo.report.build import Report, write_report

__all__ = ["Report", "write_report"]
