"""The messages of the native protocol as bytes and as values. Everything here is pure.

`encode_query` and `decode_response` are what a client needs; `decode_query` and `encode_response` what a server needs.
A decoder raises MalformedMessage, and nothing else. What it accepts is encoded again to the same bytes.
"""
