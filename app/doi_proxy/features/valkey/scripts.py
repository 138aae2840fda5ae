"""Lua scripts that the Valkey server runs atomically. They use the server's clock, in seconds since the epoch."""

from typing import Final

from doi_proxy.cache.store import MAX_ANNOUNCEMENTS

MAX_IDLE = 86400
from doi_proxy.cache.purges import EVERYTHING, MAX_PURGES, NOT_FOUND, PURGE_MEMORY, UNKNOWN
from doi_proxy.rationing.token_bucket import MAX_BACK_OFF, ROUNDING
from doi_proxy.store.stored_entry import FORMAT_BITS, MARK_OFFSET, MIN_BYTES, PLAIN, STORE_FORMAT, VERIFIED

#: Seconds for which a server gives no token after its first look at a bucket. In this time, each process that used its
#: own part of the budget finds the server: it tries the store at each token, at most PAUSE and two searches late.
SETTLING: Final = 2.0
#: What TAKE returns meanwhile.
SETTLING_REPLY: Final = b"settling"

#: A command on a key that may have data of another program. Such a key is deleted, and the server logs it. Otherwise
#: everything that needs the key would fail for ever.
_HEAL: Final = """
local function heal(command, key, ...)
    local reply = redis.pcall(command, key, ...)
    if type(reply) ~= 'table' or not reply.err then return reply end
    if string.find(reply.err, 'WRONGTYPE', 1, true) then
        redis.log(redis.LOG_WARNING, 'doi-proxy deletes ' .. key .. ', which had data of another program')
        redis.call('DEL', key)
    end
    return redis.call(command, key, ...)
end
"""

#: What reads and writes announcements. A stream of another program, or one without further ids, is deleted, and one
#: announcement of everything takes its place. Its id has the microsecond. With the millisecond alone, a stream that is
#: deleted twice in one millisecond has the same ids again, and its readers miss the second deletion.
_ANNOUNCE: Final = f"""
local function begin_anew(stream, reason)
    redis.log(redis.LOG_WARNING, 'doi-proxy deletes ' .. stream .. ', which ' .. reason)
    redis.pcall('DEL', stream)
    local time = redis.call('TIME')
    local id = string.format('%.0f-%.0f', time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000 * 1000000)
    id = redis.pcall('XADD', stream, id, 'key', '{EVERYTHING}')
    return {{type(id) == 'string' and id or '0-0', reason, '0'}}
end
local function announce(stream, key)
    local reply = redis.pcall('XADD', stream, 'MAXLEN', '~', {MAX_ANNOUNCEMENTS}, '*', 'key', key)
    if type(reply) ~= 'table' then return end
    if string.find(reply.err, 'WRONGTYPE', 1, true) or string.find(reply.err, 'last possible ID', 1, true) then
        begin_anew(stream, 'takes no announcement: ' .. reply.err)
    end
    redis.call('XADD', stream, '*', 'key', key)
end
"""

#: Announcements that READ_ANNOUNCEMENTS returns, if there are more, and that it reads at a time.
ANNOUNCEMENT_PAGE: Final = 250
_STEP: Final = 50
#: Another program wrote an announcement of more bytes, or of more words, and a longer stream. A name has 8,192 bytes.
_LONGEST_ANNOUNCEMENT: Final = 9_000
_MOST_WORDS: Final = 16
LONGEST_STREAM: Final = 2 * MAX_ANNOUNCEMENTS
#: A stream that lost the announcement at its cursor is read again from this many milliseconds before it. A failover
#: can lose the newest ones, and the clock of the new primary, which numbers them, can be this much behind. An id that
#: is this much later than now is of another program: a reader at the last possible id would miss what others announce.
_REWIND: Final = 60_000

#: KEYS[1] are the announcements, ARGV[1] is a cursor, or "" for the end. Returns the next cursor, the reason if
#: announcements were lost, "1" if there are more, and the keys of a page. They are lost if the stream is not only ours,
#: or was trimmed after the cursor. The reply has a bound, because other programs can write to the stream.
READ_ANNOUNCEMENTS: Final = f"""{_ANNOUNCE}
local stream, cursor = KEYS[1], ARGV[1]
local newest = redis.pcall('XREVRANGE', stream, '+', '-', 'COUNT', 1)
if newest.err then
    if not string.find(newest.err, 'WRONGTYPE', 1, true) then return newest end
    return begin_anew(stream, 'had data of another program')
end
newest = newest[1] and newest[1][1] or '0-0'
local function at(id) return tonumber(string.match(id, '^%d+')) or 0 end
if at(newest) > tonumber(redis.call('TIME')[1]) * 1000 + {_REWIND} then
    return begin_anew(stream, 'had an announcement from the future')
end
if cursor == '' then return {{newest, '', '0'}} end
local length = redis.call('XLEN', stream)
if length > {LONGEST_STREAM} then return begin_anew(stream, 'was too long') end
local from = '(' .. cursor
local found = redis.call('XRANGE', stream, cursor, '+', 'COUNT', 1)[1]
if not found or found[1] ~= cursor then
    local since = math.max(0, at(cursor) - {_REWIND})
    if length >= {MAX_ANNOUNCEMENTS} or length > 0 and at(newest) < since then
        return {{newest, 'does not go back to the last read', '0'}}
    end
    from = string.format('%.0f', since)
end
local reply = {{cursor, '', '0'}}
local entries
repeat
    entries = redis.call('XRANGE', stream, from, '+', 'COUNT', {_STEP})
    for _, entry in ipairs(entries) do
        local words, bytes = entry[2], 0
        for number = 1, math.min(#words, {_MOST_WORDS}) do bytes = bytes + #words[number] end
        if #words > {_MOST_WORDS} or bytes > {_LONGEST_ANNOUNCEMENT} then
            return begin_anew(stream, 'had announcements of another program')
        end
        if words[1] == 'key' then reply[#reply + 1] = words[2] end
        reply[1] = entry[1]
    end
    from = '(' .. reply[1]
until #entries < {_STEP} or #reply > {ANNOUNCEMENT_PAGE}
if #entries == {_STEP} then reply[3] = '1' end
return reply
"""

#: KEYS[1] is the lease, ARGV are the owner and milliseconds. Takes the lease, and returns 1, unless another owner has
#: it. A lease that ends later than two new ones, or never, was taken before the clock was set back, or by another
#: program, and is replaced. A user who may not call PTTL waits for its end.
LEASE: Final = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
local left = redis.pcall('PTTL', KEYS[1])
if type(left) == 'number' and (left < 0 or left > 2 * tonumber(ARGV[2])) then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1
end
return 0
"""

#: KEYS[1] is the lease, ARGV[1] the owner. Deletes the lease if the owner still has it.
RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
"""

#: KEYS[1] is the lease, ARGV are the owner and milliseconds. If the owner still has the lease, it ends after them.
RENEW: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
"""

_NOW: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
"""

#: KEYS are the entry, the purges and the announcements. ARGV are the data, its milliseconds to live, its key if it is
#: to be announced, the seconds since its query was sent, the time at which it was fetched, the latest valid time,
#: the scopes of its key, and the time if it is not verified. A condition that does not apply is "". See Store.put. The
#: seconds are a duration, because the clocks of hosts differ. store/stored_entry.py has the format of an entry:
#: checksum, mark, code, fetched, and fresh until, which is in whole seconds after fetched unless the entry is plain.
PUT: Final = (
    _NOW
    + _HEAL
    + _ANNOUNCE
    + f"""
local function proves(data, fetched_at, at)
    local mark = string.byte(data, {MARK_OFFSET + 1})
    if bit.band(mark, {VERIFIED | FORMAT_BITS}) ~= {VERIFIED | STORE_FORMAT} then return false end
    if bit.band(mark, {PLAIN}) ~= 0 then return at < struct.unpack('<d', data, 15) end
    return at < fetched_at + struct.unpack('<I4', data, 15)
end
if ARGV[4] ~= '' then
    local sent_at = now - tonumber(ARGV[4])
    for _, at in ipairs(heal('HMGET', KEYS[2], ARGV[7], ARGV[8], ARGV[9], '{UNKNOWN}', '{NOT_FOUND}')) do
        local purged_at = tonumber(at or '')
        if purged_at and sent_at < purged_at and purged_at <= now then return 0 end
    end
end
if ARGV[5] ~= '' or ARGV[10] ~= '' then
    local data = heal('GET', KEYS[1])
    local fetched_at = data and #data >= {MIN_BYTES} and struct.unpack('<d', data, 7) or math.huge
    if fetched_at <= tonumber(ARGV[6]) then
        if ARGV[5] ~= '' and fetched_at > tonumber(ARGV[5]) then return 0 end
        if ARGV[10] ~= '' and proves(data, fetched_at, tonumber(ARGV[10])) then
            announce(KEYS[3], ARGV[7])
            return 0
        end
    end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[3] ~= '' then announce(KEYS[3], ARGV[3]) end
return 1
"""
)

#: KEYS are the entry, the purges and the announcements. ARGV[1] is the scope. See Store.delete.
PURGE: Final = (
    _NOW
    + _HEAL
    + _ANNOUNCE
    + f"""
local existed = redis.call('DEL', KEYS[1])
local scope = ARGV[1]
if heal('HLEN', KEYS[2]) >= {MAX_PURGES} then
    redis.call('DEL', KEYS[2])
    scope = '{UNKNOWN}'
end
redis.call('HSET', KEYS[2], scope, string.format('%.17g', now))
redis.call('EXPIRE', KEYS[2], {PURGE_MEMORY:.0f})
announce(KEYS[3], ARGV[1])
return existed
"""
)

#: KEYS[1] are the announcements, ARGV[1] is the scope.
ANNOUNCE: Final = f"{_HEAL}{_ANNOUNCE}announce(KEYS[1], ARGV[1]) return 1"

#: The arithmetic of rationing/token_bucket.py. `held` has the fields of the hash, some missing or not numbers.
_BUCKET: Final = f"""{_NOW}{_HEAL}
local held = heal('HMGET', KEYS[1], 'tokens', 'at', 'blocked_until')
local at, blocked_until = tonumber(held[2]) or now, tonumber(held[3]) or 0
local blocked_for = math.min(math.max(0, blocked_until - math.max(now, at)), {MAX_BACK_OFF})
local function write(tokens, blocked_for)
    redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now),
        'blocked_until', string.format('%.17g', now + blocked_for))
    redis.call('EXPIRE', KEYS[1], {MAX_IDLE})
end
"""

#: KEYS[1] is the bucket. ARGV are rate, burst, leaving, count, 1 for a caller that is back from an outage, and 1 for
#: the first take of a process. Takes `count` tokens and returns 0. If there are fewer, returns the seconds until there
#: are enough, as text.
#:
#: A failover can lose the newest writes and a restart all of them. Meanwhile, each process spends its part of the
#: tokens by itself. So the bucket is empty until `settles_until` if this server has not looked at it before (`server`),
#: or if the caller is back from an outage. A user who may not call INFO learns of a server without the bucket alone.
TAKE: Final = (
    _BUCKET
    + f"""
local known = redis.call('HMGET', KEYS[1], 'server', 'settles_until')
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or known[1]
local settles_until = tonumber(known[2]) or 0
-- A later time was written before the clock was set back.
if settles_until > now + {SETTLING} then settles_until = 0 end
if not known[1] or known[1] ~= server or ARGV[5] == '1' and settles_until <= now then
    settles_until = now + {SETTLING}
end
redis.call('HSET', KEYS[1], 'server', server or '', 'settles_until', string.format('%.17g', settles_until))
local rate, burst, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local tokens, filled_until = tonumber(held[1]) or burst, at
if not (tokens >= 0) then tokens = 0 end
if blocked_until > at or settles_until > at then tokens, filled_until = 0, math.max(blocked_until, settles_until) end
if ARGV[6] == '1' then filled_until = math.max(filled_until, now) end
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
write(tokens, blocked_for)
if settles_until > now and blocked_for == 0 then return '{SETTLING_REPLY.decode()}' end
return wait == math.huge and 'inf' or string.format('%.17g', wait)
"""
)

#: KEYS[1] is the bucket, ARGV[1] the seconds. Empties the bucket for that time, then lets it fill again. A longer
#: back-off under way is not shortened.
BACK_OFF: Final = (
    _BUCKET
    + f"""
write(0, math.max(blocked_for, math.min(tonumber(ARGV[1]), {MAX_BACK_OFF})))
return 1
"""
)
