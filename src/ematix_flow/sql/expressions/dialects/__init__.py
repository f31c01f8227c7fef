"""One renderer per dialect, for the operations of the expression tree."""
