-- post.lua replaces the copy of the switches unless it has that revision or a higher one, or takes down the one of that revision.
-- KEYS: the copy, a hash. ARGV: the revision; the text, '' to take it down; the highest revision that there can be, and the most
-- bytes of a text: what is beyond them is no copy.
local key, call = KEYS[1], redis.call
local there = 0
if call('TYPE', key).ok == 'hash' and call('HSTRLEN', key, 'revision') <= 16 then
  there = tonumber(call('HGET', key, 'revision') or 0) or 0
  local length = call('HSTRLEN', key, 'text')
  if not (there >= 1 and there <= tonumber(ARGV[3])) or there ~= math.floor(there) or length == 0 or length > tonumber(ARGV[4]) then there = 0 end
end
local revision = tonumber(ARGV[1])
if ARGV[2] == '' then
  if there == revision then call('DEL', key) end
elseif there < revision then
  call('DEL', key)
  call('HSET', key, 'revision', ARGV[1], 'text', ARGV[2])
end
return 1
