-- read.lua reads a bucket as a write will find it, if nothing comes between, and tells the node's time.
-- KEYS: the bucket, a hash. ARGV: the fields to read.
-- Returns their values, and the time in seconds and microseconds.
local v = redis.call('HMGET', KEYS[1], unpack(ARGV))
local time = redis.call('TIME')
v[#v + 1], v[#v + 2] = time[1], time[2]
return v
