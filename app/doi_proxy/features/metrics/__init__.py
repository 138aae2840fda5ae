"""IT staff miss it when an alert must wake them before readers complain."""
