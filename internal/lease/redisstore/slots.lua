-- slots.lua is the step of a concurrency limit (slots.go): slots are in use, to spare, or free.
local SPARE, WAIT = 16, 50000
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
  local can = whole(max(level, 0))
  local share = whole(floor(muldiv(can, mine, all) / 2))
  local spare = 0
  if level > floor(burst / 2) then
    spare = min(share, max(in_use, SPARE * MICRO))
  elseif level > floor(burst / 8) then
    spare = min(share, max(whole(floor(in_use / 4)), 2 * MICRO))
  end
  local served = serve(can)
  if demand_out > 0 and served < waiting * MICRO then
    served = serve(max(can - freed, 0)) -- what it gave back just now is for others first
  end
  spare = max(spare, served)
  local kept = max(spare, spare_held) -- what is taken away is its own until it has renewed again
  level = level - kept
  lent, stock = spare, in_use + kept
  term = LONG
  if kept > 0 or level < floor(burst / 4) or not rec or rec[23] == 0 then
    term = SHORT
  else
    term = min(term, 4 * rec[23])
  end
  hang(term, hold)
  fallback = muldiv(burst, mine, all) -- what it has beyond that it gives back as requests end, while others wait
  tokens = floor(spare / MICRO)
  remaining = max(floor((level + spare) / MICRO), 0)
  if spare < waiting * MICRO or (spare == 0 and level < MICRO) then deny = WAIT end
end
