"""Session to store: telemetry, series, windows, alerts. Headless; the screens and the command line both use it."""
