"""IT staff and load balancers miss it at an alarm: is the proxy ready, and what is the worst that happens?"""
