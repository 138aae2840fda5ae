"""The messages of the native protocol as bytes and as values. Everything here is pure.

`encode_query` and `decode_response` are what a client needs. A decoder raises MalformedMessage, and nothing else.
"""
