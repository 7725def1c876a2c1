"""How a machine is reached: the interface (base), ssh, local, and the session that keeps a connection alive."""
