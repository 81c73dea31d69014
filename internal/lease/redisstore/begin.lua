-- begin.lua marks a shard as remembering from now on, unless another server did meanwhile.
-- KEYS: the mark. ARGV: 1 the life that was seen, '' for none  2 the new one  3 lost (0|1)
-- Returns {life, since us, lost}.
if (redis.call('HGET', KEYS[1], 'life') or '') == ARGV[1] then
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'life', ARGV[2], 'since', string.format('%.0f', time[1] * 1000000 + time[2]), 'lost', ARGV[3])
end
local mark = redis.call('HMGET', KEYS[1], 'life', 'since', 'lost')
return {mark[1], tonumber(mark[2]), tonumber(mark[3])}
