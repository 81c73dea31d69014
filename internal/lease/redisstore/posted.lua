-- posted.lua returns the copy of the switches, if its revision is above one.
-- KEYS: the copy, a hash. ARGV: that revision, the highest that there can be, and the most bytes of a text.
-- Returns {revision, text}: 0 and '' where there is nothing that can be a copy, and '' where there is nothing newer.
local key, call = KEYS[1], redis.call
if call('TYPE', key).ok ~= 'hash' or call('HSTRLEN', key, 'revision') > 16 then return {0, ''} end
local revision = tonumber(call('HGET', key, 'revision') or 0) or 0
if not (revision >= 1 and revision <= tonumber(ARGV[2])) or revision ~= math.floor(revision) then return {0, ''} end
local length = call('HSTRLEN', key, 'text')
if length == 0 or length > tonumber(ARGV[3]) then return {0, ''} end
if revision <= tonumber(ARGV[1]) then return {revision, ''} end
return {revision, call('HGET', key, 'text')}
