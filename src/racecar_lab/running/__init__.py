"""From an experiment to its records: jobs, the results store, searches, and the engines that do the work."""
