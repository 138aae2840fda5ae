"""How a message reaches a handle server and how its answer comes back: UDP, TCP, and the tunnel through HTTP."""
