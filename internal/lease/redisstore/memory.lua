-- memory.lua looks at a shard's mark, and tells which history its node is of.
-- KEYS: the mark, a hash in one of the shard's slots.
-- Returns {life, since us, lost (0|1), INFO, now us, forgot us}; life is empty where the mark is gone. What was leased before
-- forgot may not be known here; a mark without it, of an earlier build, says so by since.
local time = redis.call('TIME')
local mark = redis.call('HMGET', KEYS[1], 'life', 'since', 'lost', 'forgot')
return {mark[1] or '', tonumber(mark[2] or 0), tonumber(mark[3] or 0), redis.call('INFO', 'replication', 'stats'),
  time[1] * 1000000 + time[2], tonumber(mark[4] or mark[2] or 0)}
