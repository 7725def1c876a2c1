"""The runner of a pipeline, a process of its own on the host: steps and servers as jobs, in order, gates between them."""
