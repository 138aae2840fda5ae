"""What happens inside the Valkey server in one step: Lua, with the server's clock, in seconds since the epoch."""

from typing import Final

#: KEYS[1] the lease, ARGV[1] the owner: delete it if it is still the owner's.
RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
"""

_NOW: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'blocked_until')
local blocked_until = tonumber(held[3]) or 0
"""

#: KEYS[1] the bucket, ARGV rate, burst and leaving: take one token; the seconds until there will be one, or 0, as text.
#: The same arithmetic as app.cache.bucket.take_one; a bucket that has been full for a while is forgotten.
TAKE: Final = (
    _NOW
    + """
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local needed = 1 + math.max(0, math.min(tonumber(ARGV[3]), burst - 1))
local tokens, at = tonumber(held[1]) or burst, tonumber(held[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local wait = 0
if now < blocked_until then
    wait = blocked_until - now
elseif tokens >= needed then
    tokens = tokens - 1
elseif rate > 0 then
    wait = (needed - tokens) / rate
else
    wait = math.huge
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now),
    'blocked_until', string.format('%.17g', blocked_until))
local full_in = rate > 0 and (burst - tokens) / rate or 86400
redis.call('EXPIRE', KEYS[1], math.ceil(math.min(86400 * 365, math.max(full_in, blocked_until - now, 0) + 60)))
return wait == math.huge and 'inf' or string.format('%.17g', wait)
"""
)

#: KEYS[1] the bucket, ARGV[1] seconds: no token before these have passed; a longer block that exists stays.
BACK_OFF: Final = (
    _NOW
    + """
local seconds = tonumber(ARGV[1])
redis.call('HSET', KEYS[1], 'blocked_until', string.format('%.17g', math.max(blocked_until, now + seconds)))
local left = redis.call('TTL', KEYS[1])
redis.call('EXPIRE', KEYS[1], math.ceil(math.min(86400 * 365, math.max(left, seconds + 60))))
return 1
"""
)
