"""What a fitted model says: posterior, predictives, tables, plots, the published posterior."""
