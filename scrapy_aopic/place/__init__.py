"""Where a job is: the paths in its folder, and what lies beside its store."""
