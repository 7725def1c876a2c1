"""The table of faults: every test marked ``fault`` provokes one of its rows for real and checks what must stay true."""
