-- begin.lua marks a shard as remembering from now on, unless another server did meanwhile.
-- KEYS: the mark. ARGV: 1 the life that was seen, '' for none  2 the new one  3 lost (0|1)  4 where leases may be forgotten,
-- what forgot is to be above: the highest that any shard's was seen to be, so that it rises whatever the nodes' clocks say;
-- '' for it to stay as it is
-- Returns {life, since us, lost, forgot us}.
local was = redis.call('HMGET', KEYS[1], 'life', 'since', 'forgot')
if (was[1] or '') == ARGV[1] then
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  local forgot = was[3] or was[2] or 1
  if ARGV[4] ~= '' then forgot = string.format('%.0f', math.max(tonumber(now), tonumber(ARGV[4]) + 1)) end
  redis.call('HSET', KEYS[1], 'life', ARGV[2], 'since', now, 'lost', ARGV[3], 'forgot', forgot)
end
local mark = redis.call('HMGET', KEYS[1], 'life', 'since', 'lost', 'forgot')
return {mark[1], tonumber(mark[2]), tonumber(mark[3]), tonumber(mark[4] or mark[2])}
