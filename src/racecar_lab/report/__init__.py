"""From records to a page: statistics, verdicts, tables and figures in one HTML file, and the same as Markdown."""

from racecar_lab.report.groups import gather
from racecar_lab.report.write import Report, write_report

__all__ = ["Report", "gather", "write_report"]
