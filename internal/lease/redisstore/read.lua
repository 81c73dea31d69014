-- read.lua reads a bucket as a write will find it, if nothing comes between, and tells the node's time.
-- KEYS: the bucket, a hash. ARGV: how many fields to look at besides, then the fields to read.
-- Returns their values, the time in seconds and microseconds, and fields of the bucket, drawn by lot, with their values.
local v = redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
local time = redis.call('TIME')
v[#v + 1], v[#v + 2] = time[1], time[2]
if ARGV[1] ~= '0' then
  for _, some in ipairs(redis.call('HRANDFIELD', KEYS[1], ARGV[1], 'WITHVALUES')) do v[#v + 1] = some end
end
return v
