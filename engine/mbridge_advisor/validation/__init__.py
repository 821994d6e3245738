"""Our figures against measured and published ones: rows of data become arguments of the estimates."""
