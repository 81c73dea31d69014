-- finish.lua ends every step: it writes the state and the record, in the format that step.lua reads, and answers.
local record = {
  stock, pile, trickle, demand, following, in_slot, t, expires, win, next_window, fresh, seen_largest,
  began, admitted, denied, lent, algorithm, declared,
  number, tokens, share or trickle, granted_pile, term, deny, fallback, from, through, floor(following / MICRO), gen,
  in_slot, remaining, reset, floor((stock_out + pile_out) / MICRO), trickle_out,
  asks, ahead, FORMAT,
}
local state = {
  FORMAT, kind, level, carry, last, offset, since, capacity, win, win_end, gen,
  locked, suspect, withheld, before, left, edge, last_edge,
  stock_out, pile_out, trickle_out, demand_out, next_out, unsure, moved, lapsed, used_up, returned, most_asked, most_asked_until,
}
last_slot = 0
for at, sums in pairs(ring) do
  last_slot = max(last_slot, at)
  local n = #state
  state[n + 1], state[n + 2], state[n + 3], state[n + 4], state[n + 5], state[n + 6] =
    at, sums[1], sums[2], sums[3], sums[4], sums[5]
end
redis.call('HSET', key, 'b', cmsgpack.pack(state), holder, cmsgpack.pack(record))

-- Keep the bucket until it is full, its window is over, and no lease can be live.
keep = max(keep, MAX_STEP, LONG + hold + 2 * SLOT, locked - t, (last_slot + 2) * SLOT - t)
redis.call('PEXPIRE', key, floor(keep / 1000) + 1)

-- Sweep records of the long gone, looking at a few: it changes no answer. A newcomer
-- looks at two, so that those who come once and never again do not pile up.
local look = 0
if newcomer then look = 2 elseif number % 8 == 0 then look = 1 end
if look > 0 then
  local some = redis.call('HRANDFIELD', key, look, 'WITHVALUES')
  for i = 1, #some, 2 do
    if string.sub(some[i], 1, 2) == 'r:' and some[i] ~= holder and gone(cmsgpack.unpack(some[i + 1]), t) then
      redis.call('HDEL', key, some[i])
    end
  end
end

local answer = {}
for i = 19, asks > 0 and 35 or 34 do answer[i - 18] = record[i] end
return answer
