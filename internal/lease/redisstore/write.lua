-- write.lua writes a bucket unless it changed since it was read. No two writes of field b are ever the same, and each
-- write of a bucket writes it: while b is what it was, all of it is.
-- KEYS: the bucket. ARGV: what b began with as it was read, through what no other write has, '' for none: Redis's Lua looks at each byte of a
-- string that it is given, and so it is given few; how long to keep the bucket from now on, in ms, 0 for as long as was
-- said before; how many fields to delete, and these; then fields with their values, b first.
-- Returns 1, or 0 where it changed.
local key, call = KEYS[1], redis.call
local was, b = ARGV[1], call('HGET', key, 'b') or ''
if string.sub(b, 1, #was) ~= was or was == '' and b ~= '' then return 0 end
local gone = tonumber(ARGV[3])
if gone > 0 then call('HDEL', key, unpack(ARGV, 4, 3 + gone)) end
call('HSET', key, unpack(ARGV, 4 + gone))
if ARGV[2] ~= '0' then call('PEXPIRE', key, ARGV[2]) end
return 1
