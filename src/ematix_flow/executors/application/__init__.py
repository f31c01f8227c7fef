"""The application that spark-submit runs."""
