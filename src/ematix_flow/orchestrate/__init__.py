"""The scheduler, backfills, and the requests of users: which jobs are due, and how they are executed."""
