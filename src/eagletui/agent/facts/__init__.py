"""Facts about a launch that is only planned: read on the host, judged elsewhere (``engines.preflight``).

One request, bounded in time and bytes. Configurations, the headers of safetensors files (never what lies behind them), the source
text of the installed engine, /proc and /sys are read; nothing is written and no foreign code is run.
"""
