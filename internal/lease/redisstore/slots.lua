-- slots.lua is the step of a concurrency limit (slots.go): slots are in use, to spare, or free.
local OWN, START, TRIP, ASK, WAIT = 200, 16, 2000, 250, 50000
local in_use, spare_held = tonumber(ARGV[11]) * MICRO, held * MICRO

refill_to = function(to) last = to end
advance(t)
if forgotten then forget(withhold) end
release()
local freed = 0
if rec then
  if rec[6] * SLOT > t then
    level = level + rec[1]
    freed = max(rec[1] - in_use, 0)
  end
elseif expires_in > 0 and t < suspect then
  local declared = min(in_use + spare_held, withheld)
  withheld = withheld - declared
  level = level + declared
end
level = level - in_use
demand, fresh = demand_now()
seen_largest = largest
if final then
  -- What is still in flight keeps its slots until they expire.
  demand, stock = 0, in_use
  if in_use > 0 then hang(SHORT, hold) end
else
  local mine = max(demand, 1)
  local all = demand_out + mine
  local share = muldiv(burst, mine, all)
  local own = share >= OWN * MICRO or demand_out == 0
  local can = whole(max(level, 0))
  local spare, keep = 0, 0 -- slots besides those in use, and how many of them may lie idle
  if mine <= 1 then
    spare = 0 -- nothing was asked for of late
  elseif own then
    spare, keep = min(max(share - in_use, 0), max(in_use, START * MICRO)), burst
    if demand_out == 0 then spare = min(spare, floor(can / 2)) end
  elseif level - freed > floor(burst / 8) and waiting * MICRO <= can then
    spare = whole(floor(muldiv(level, share, burst) / 2) + MICRO - 1)
    keep = 2 * spare
    spare = max(spare, min(spare_held, keep), floor(in_use / 4))
    if level > floor(burst / 2) then spare = max(spare, min(floor(can / 8), START * MICRO)) end
    keep = max(keep, spare)
  else
    keep = floor(share / 8)
    spare = min(spare_held, keep)
  end
  local served = serve(can)
  if demand_out > 0 and served < waiting * MICRO then
    served = serve(max(can - freed, 0)) -- what it gave back just now is for others first
  end
  spare = max(whole(min(spare, can)), served)
  local kept = max(spare, spare_held) -- what is taken away is its own until it has renewed again
  level = level - kept
  lent, stock = spare, in_use + kept
  if not rec or rec[23] == 0 then
    term = SHORT
  elseif kept == 0 and level >= floor(burst / 4) then
    term = min(LONG, 4 * rec[23])
  elseif own then
    term = min(4 * SHORT, 2 * rec[23])
  else
    term = SHORT
  end
  hang(term, hold)
  fallback = share -- what it has beyond that it gives back as requests end, while others wait
  if own then fallback = fallback + floor(share / 8) end
  tokens = floor(spare / MICRO)
  granted_pile = floor(keep / MICRO)
  remaining = max(floor((level + spare) / MICRO), 0)
  if spare < waiting * MICRO or (spare == 0 and level < MICRO) then
    deny = min(max(TRIP, muldiv(ASK, all, mine), muldiv(ASK, share, MICRO)), WAIT)
    if own and in_use + spare >= share - floor(share / 8) then deny = max(floor(term / 2), WAIT) end
  end
end
