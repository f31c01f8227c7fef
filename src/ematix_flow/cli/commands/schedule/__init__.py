"""Commands about schedules: scheduler, retry, pause, send, freshness-check, gaps."""
