"""The words every room shares: backend, commit, job, shape, change."""
