"""The entries of the failure catalogue: data, in files by theme. `diagnosis.entries` puts them together."""
