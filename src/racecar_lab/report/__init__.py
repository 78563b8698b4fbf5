"""From records to a page.

1. ``read_records`` reads the runs of a folder; ``write.build`` divides them by experiment and purpose.
2. ``groups.gather`` puts runs that differ in the seed alone into a group. The fields in which groups differ are its
   setting (``settings``).
3. ``claims.judge`` makes a finding (``findings``) of every claim in every setting: paired gain, interval and verdict
   (``clustered``, ``statistics``, ``verdicts``), with Holm's correction over all claims of a configuration.
4. ``claim_tables``, ``result_tables`` and ``costs`` make tables (``page_table``) of findings and groups. ``words``
   writes numbers, ``metrics`` has the meanings and units of metrics.
5. ``forest`` draws the findings, ``run_figures`` the groups if the experiment has no figures; ``pictures`` makes SVGs.
6. ``about``, ``claim_words`` and ``provenance`` write the text around them.
7. ``section`` is all of this for one experiment, ``page`` its HTML and Markdown; ``write`` writes the files.
"""

from racecar_lab.report.groups import gather
from racecar_lab.report.write import Report, write_report

__all__ = ["Report", "gather", "write_report"]
