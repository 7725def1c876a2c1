"""What vLLM and SGLang accept, print and answer: pure functions on bytes and dicts, no I/O. Python 3.8 syntax."""
