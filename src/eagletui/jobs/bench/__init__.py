"""What a benchmark's numbers mean: passes read and checked, cells pooled, arms compared, the verdict. Pure functions."""
