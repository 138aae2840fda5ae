"""Lua scripts that the Valkey server runs atomically. They use the server's clock, in seconds since the epoch."""

from typing import Final

from app.cache.buckets import LONGEST_IDLE
from app.token_bucket import LONGEST_BACK_OFF, ROUNDING

#: KEYS[1] is the lease, ARGV[1] the owner. Deletes the lease if the owner still has it.
RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
"""

#: The arithmetic of app/token_bucket.py. `held` has the fields of the hash, which may be missing or not numbers.
_BUCKET: Final = f"""
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'blocked_until')
local at, blocked_until = tonumber(held[2]) or now, tonumber(held[3]) or 0
local blocked_for = math.min(math.max(0, blocked_until - math.max(now, at)), {LONGEST_BACK_OFF})
local function write(tokens, blocked_for, idle)
    redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now),
        'blocked_until', string.format('%.17g', now + blocked_for))
    redis.call('EXPIRE', KEYS[1], math.ceil(math.min({LONGEST_IDLE}, idle + 60)))
end
"""

#: KEYS[1] is the bucket, ARGV are rate, burst, leaving and count. Takes `count` tokens and returns 0, or returns the
#: seconds until there will be as many, as text. A bucket that has been full for a minute expires.
TAKE: Final = (
    _BUCKET
    + f"""
local rate, burst, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local tokens, filled_until = tonumber(held[1]) or burst, at
if not (tokens >= 0) then tokens = 0 end
if blocked_until > at then tokens, filled_until = 0, blocked_until end
tokens = math.min(burst, tokens + math.max(0, now - filled_until) * rate)
local missing = count + math.max(0, math.min(tonumber(ARGV[3]), burst - count)) - tokens
local wait = 0
if missing <= {ROUNDING} then
    tokens, blocked_for = tokens - count, 0
elseif rate > 0 then
    wait = blocked_for + missing / rate
else
    wait = math.huge
end
write(tokens, blocked_for, blocked_for + (rate > 0 and (burst - tokens) / rate or {LONGEST_IDLE}))
return wait == math.huge and 'inf' or string.format('%.17g', wait)
"""
)

#: KEYS[1] is the bucket, ARGV[1] the seconds. Empties the bucket for that time, then lets it fill again. A longer
#: back-off under way is not shortened.
BACK_OFF: Final = (
    _BUCKET
    + f"""
write(0, math.max(blocked_for, math.min(tonumber(ARGV[1]), {LONGEST_BACK_OFF})), {LONGEST_IDLE})
return 1
"""
)
