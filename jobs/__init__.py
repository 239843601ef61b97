"""Complete runs: one folder each, with a plan and a recipe."""
