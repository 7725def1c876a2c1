"""What screens show of the store, worked out: pure functions over records and series, used by the watch and by the screens."""
