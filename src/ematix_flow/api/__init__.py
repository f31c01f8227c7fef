"""What users call from Python, behind the documented modules of the package."""
