"""The native Handle protocol (RFC 3650 to 3652, DO-IRP 3.0): resolution at handle servers, without an HTTP API."""
