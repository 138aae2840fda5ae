"""The Handle protocol: RFC 3650, 3651 and 3652 with their errata, as the servers in use speak it.

Begin with `client.HandleResolver`, which resolves handles. `wire` has the messages, `value` has what they carry, and
`errors` says what can go wrong. The page docs/handle-protocol.md has examples.
"""
