"""What is measured against what. One command each; `python -m benchmarks.run` runs all. See README.md."""
