-- renew.lua answers one holder's renewal of one bucket: the step of package lease
-- (step.go and share.go, where the reasons are), in one atomic script. Numbers are
-- doubles holding whole numbers below 2^53, computed in the same order as there:
-- the answers are equal to the last digit, and a test holds both to it.
--
-- KEYS: the bucket, a hash: field s is its state, h:<holder> a holder's record.
-- ARGV: 1 now in us ('' = this node's clock)  2 holder  3 number  4 began
--   5 admitted  6 denied  7 told  8 held  9 waiting  10 final (0|1)  11 window
--   12 expires in us  13 generation  14 windowed (0|1)  15 refill, micro-tokens/s, not rounded
--   16 burst, micro-tokens  17 epsilon, ppm  18-20 window start, end, end of the next
-- Returns {number, tokens, trickle, pile, ttl us, deny us, fallback, window start,
--   window end, generation, expiry slot, remaining, reset us}, or {-1} for a stale number.
local MICRO, SLOT = 1000000, 500000
local FIRST, SHORT, LONG = 200000, 500000, 10000000
local RECORD_LIFE, MAX_STEP = 600000000, 2 * 10000000 + 2 * 500000
local SMOOTHING, GUESS_PER, FEWEST, SPARSE = 300000, 100000, 8, 64
local MOST_DEMAND, MOST = 1000000000000, 9007199254740992
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local key = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * MICRO + tonumber(time[2])
end
local holder = 'h:' .. ARGV[2]
local number, began = tonumber(ARGV[3]), tonumber(ARGV[4])
local admitted, denied, told = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local held, waiting, final = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1'
local window, expires_in, generation = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local windowed, flow, burst = ARGV[14] == '1', tonumber(ARGV[15]), tonumber(ARGV[16])
local rate = windowed and 0 or math.max(math.floor(flow), 1)
local epsilon = tonumber(ARGV[17])

local function muldiv(a, b, c) return floor(a * b / c) end
local function lasts(gain, flow)
  if flow <= 0 then return MOST end
  return min(ceil(gain * 1e6 / flow), MOST)
end

-- The state. Sums are stock, pile, trickle and demand; the ring holds them by slot.
local level, carry, last, offset, since, win, win_end, gen, capacity
local stock_out, pile_out, trickle_out, demand_out
local ring, leases = {}, 0

local fields = redis.call('HMGET', key, 's', holder)
if fields[1] then
  local s = cmsgpack.unpack(fields[1])
  level, carry, last, offset, since, win, win_end, gen = s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]
  stock_out, pile_out, trickle_out, demand_out = s[9], s[10], s[11], s[12]
  capacity = s[13]
  for i = 14, #s, 5 do
    ring[s[i]] = {s[i + 1], s[i + 2], s[i + 3], s[i + 4]}
    leases = leases + 1
  end
else
  level, carry, last, offset, since, win, win_end, gen = burst, 0, now, 0, now, 0, 0, 1
  stock_out, pile_out, trickle_out, demand_out = 0, 0, 0, 0
  capacity = burst
  if expires_in > 0 then -- the holder has a live lease of it: the store forgot
    gen = generation + 1
    level = 0
  end
end

-- The bucket's own clock never runs backward.
local t = now + offset
if t < last then
  if last - t >= 1000000 then offset = offset + (last - t) end
  t = last
elseif t > last + MAX_STEP and stock_out + pile_out + trickle_out > 0 then
  offset = offset - (t - (last + MAX_STEP))
  t = last + MAX_STEP
end

-- A limit that changed: what was used stays used.
if not windowed and win > 0 then win, win_end = 0, 0 end
if burst ~= capacity then
  local before = level
  level = level + (burst - capacity)
  if not windowed and level < 0 then level = min(before, 0) end
  capacity = burst
end

if windowed then
  local start, stop = tonumber(ARGV[18]), tonumber(ARGV[19])
  if now >= stop then start, stop = stop, tonumber(ARGV[20]) end
  if start > win then
    win, win_end = start, stop
    level = burst
    stock_out, pile_out, trickle_out = 0, 0, 0
    for _, sums in pairs(ring) do sums[1], sums[2], sums[3] = 0, 0, 0 end
  end
end

local slack = 0
if rate > 0 then slack = muldiv(rate + burst, epsilon, 2 * MICRO) end

local function clip()
  local full = min(burst, burst + slack - stock_out - pile_out)
  if level > full then
    level = max(full, 0)
    carry = 0
  end
  if trickle_out <= 0 then
    since = t
    return
  end
  local room = max(burst + slack - stock_out - pile_out - level, 0)
  since = max(since, t - min(muldiv(room, 1e6, trickle_out), t))
end

-- refill brings the level to the time `to`; clip then works at that time.
local function refill(to)
  local own = flow - trickle_out
  if own > 0 and to > last then
    local gained = (to - last) * own / 1e6 + carry
    local whole = floor(gained)
    carry = gained - whole
    level = level + min(whole, 4503599627370496)
  end
  last = to
  local keep = t
  t = to
  clip()
  t = keep
end

local slot = floor(last / SLOT) + 1
while leases > 0 and slot * SLOT <= t do
  local sums = ring[slot]
  if sums then
    refill(slot * SLOT)
    stock_out, pile_out = stock_out - sums[1], pile_out - sums[2]
    trickle_out, demand_out = trickle_out - sums[3], demand_out - sums[4]
    ring[slot] = nil
    leases = leases - 1
  end
  slot = slot + 1
end
refill(t)

-- The holder's record: stock, pile, trickle, demand, slot, start, expires,
-- window, fresh (1) or on its share (2), began, admitted, denied, lent, and the answer from 14 on.
local rec = fields[2] and cmsgpack.unpack(fields[2])
if rec and rec[7] + RECORD_LIFE <= t then rec = nil end
local spent, refused = admitted - told, 0
if rec and rec[10] == began then
  spent, refused = max(admitted - rec[11], 0), max(denied - rec[12], 0)
end
spent, refused = min(spent, 1000000000), min(refused, 1000000000)
if rec then
  if number == rec[14] then
    local answer = {}
    for i = 14, #rec do answer[i - 13] = rec[i] end
    return answer
  end
  if number < rec[14] then return {-1} end
  if rec[5] * SLOT > t then
    local a, b, c = rec[1], rec[2], rec[3]
    if rec[8] ~= win then a, b, c = 0, 0, 0 end
    stock_out, pile_out, trickle_out = stock_out - a, pile_out - b, trickle_out - c
    demand_out = demand_out - rec[4]
    local sums = ring[rec[5]]
    if not sums then
      sums = {0, 0, 0, 0}
      ring[rec[5]] = sums
      leases = leases + 1
    end
    sums[1], sums[2], sums[3], sums[4] = sums[1] - a, sums[2] - b, sums[3] - c, sums[4] - rec[4]
    if sums[1] == 0 and sums[2] == 0 and sums[3] == 0 and sums[4] == 0 then
      ring[rec[5]] = nil
      leases = leases - 1
    end
  end
end

-- Put back what was not spent; take out what was overspent.
spent = spent * MICRO
refused = refused * MICRO
if not rec then
  if window == win then level = max(level - spent, -burst) end
elseif window == win and rec[8] ~= win then
  -- Out of contact the holder went on with its share of each window, this one too:
  -- what is left of it stays with the holder.
  local share = muldiv(rec[20], win_end - win, 1e6)
  level = max(level - share + min(held * MICRO, share), -burst)
elseif window == win then
  local stop = max(min(t, rec[5] * SLOT), rec[6])
  local lent = rec[13] + muldiv(rec[3], stop - rec[6], 1e6)
  local given = min(held * MICRO, lent)
  if stop < t then given = 0 end -- no longer in the sums: what was not spent of it is void
  local back = lent - spent - given
  if stop == t or back < 0 then
    level = level + given
    if back >= 0 then
      local from = max(min(since, stop), rec[6])
      level = level + min(back, rec[13] + muldiv(rec[3], stop - from, 1e6))
    elseif stop == t or win > 0 then
      level = max(level + back, -burst)
    else
      local over = -back
      local recent = min(over, muldiv(rec[3], t - max(stop, min(since, t)), 1e6))
      level = max(level - recent, -burst)
      if level > 0 and refused > 0 then
        level = max(level - muldiv(over - recent, refused, spent + refused), 0)
      end
    end
    clip()
  end
end

-- Demand, in thousandths of a unit a second.
local demand, fresh
if not rec or rec[4] == 0 then
  demand, fresh = min(muldiv(max(waiting, 1), 1e9, GUESS_PER), MOST_DEMAND), 1
else
  local elapsed = max(t - rec[6], 1000)
  local asked = (spent + refused) / MICRO + waiting
  local seen = min(muldiv(asked, 1e9, elapsed), MOST_DEMAND)
  fresh = 0
  if asked == 0 and elapsed >= FIRST / 2 then
    demand = 1 -- it stopped: what it had is for others at once
  elseif rec[9] == 1 then
    demand = max(seen, 1)
  else
    demand = max(rec[4] + muldiv(seen - rec[4], elapsed, elapsed + SMOOTHING), 1)
  end
end

-- A holder that came back in the middle of a window keeps to its share until it turns.
local on_share = rec and win > 0 and window == win
  and (rec[8] ~= win or rec[9] == 2 or 8 * (spent - rec[13]) > rec[13])

local lent, stock, trickle, pile, term, deny, fallback, remaining, reset = 0, 0, 0, 0, 0, 0, 0, 0, 0
local expires, in_slot = t, 0
if final then
  demand = 0
else
  local mine = max(demand, 1)
  local all = demand_out + mine

  -- The trickle, and what may pile up from it.
  if rate > 0 then
    trickle = min(mine * 1200, muldiv(rate, mine, all), rate - trickle_out)
    if muldiv(trickle, SHORT, 1e6) < 2 * MICRO then
      trickle = 0
    else
      local room = max(burst + slack - stock_out - pile_out - level, 0)
      local span = max(muldiv(slack, 1e6, rate), min(muldiv(room, 500000, rate), SHORT / 2))
      pile = muldiv(trickle, span, 1e6)
      pile = pile - pile % MICRO
      if pile < MICRO then
        if pile_out + MICRO > slack + floor(burst / 4) then
          trickle, pile = 0, 0
        else
          pile = MICRO
        end
      end
    end
  end

  -- The stock.
  if level >= MICRO then
    local whole = level - level % MICRO
    stock = muldiv(whole, mine, all)
    if windowed then stock = floor(stock / 2) end
    local plenty, use = level > floor(burst / 2), mine * 1000
    if plenty and trickle == 0 then
      use = use * 10
    elseif plenty then
      use = max(use, min(10 * use, SPARSE * MICRO))
    elseif trickle == 0 then
      use = use * 4
    end
    stock = min(stock, use)
    if plenty and not windowed then stock = max(stock, min(floor(whole / 64), 2 * FEWEST * MICRO)) end
    stock = stock - stock % MICRO
    if trickle == 0 and stock < FEWEST * MICRO then stock = 0 end
    lent = min(max(stock, waiting * MICRO), whole)
  end
  if on_share then lent = max(min(held * MICRO, level - math.fmod(level, MICRO)), 0) end
  level = level - lent
  stock = max(lent - waiting * MICRO, 0) -- what requests wait for is spent at once
  if pile > 0 then
    local most = burst + slack - stock_out - stock - pile_out
    pile = min(pile, most - math.fmod(most, MICRO))
    if pile < MICRO then trickle, pile = 0, 0 end
  end

  -- The term.
  local pressed = rate > 0 and (muldiv(trickle_out + trickle, 100, rate) > 85 or level < floor(burst / 4))
  term = LONG
  if fresh == 1 and rate > 0 and level > floor(burst / 2) then
    term = 2 * SHORT
  elseif fresh == 1 then
    term = FIRST
  elseif pressed and trickle > 0 then
    term = SHORT
  elseif rec and rec[9] == 1 then
    term = 4 * FIRST
  elseif rec and rec[18] > 0 then
    term = min(term, 4 * rec[18])
  else
    term = SHORT
  end
  if win_end > 0 then term = max(min(term, win_end - now), 1000) end

  expires = t + term
  in_slot = floor((t + 2 * term + SLOT) / SLOT)
  stock_out, pile_out = stock_out + stock, pile_out + pile
  trickle_out, demand_out = trickle_out + trickle, demand_out + demand
  local sums = ring[in_slot]
  if sums then
    sums[1], sums[2], sums[3], sums[4] = sums[1] + stock, sums[2] + pile, sums[3] + trickle, sums[4] + demand
  else
    ring[in_slot] = {stock, pile, trickle, demand}
    leases = leases + 1
  end
  clip()

  fallback = trickle
  if rate > 0 then fallback = max(trickle, muldiv(rate, mine, all)) end
  -- The holder's share of a window, were it spread over it.
  if win_end > 0 then fallback = muldiv(muldiv(burst, 1e6, win_end - win), mine, all) end
  remaining = max(floor((level + stock_out) / MICRO), 0)
  if level < MICRO then
    if win_end > 0 then
      deny = max(win_end - now, 1000)
      if stock_out > 0 then deny = min(deny, SHORT) end
    else
      local own, most = flow - trickle_out, term
      if trickle_out > 0 and trickle == 0 then most = min(most, FIRST / 2) end
      deny = most
      if own > 0 then
        deny = lasts(MICRO - level, own)
        if trickle > 0 then deny = min(muldiv(min(deny, most), all, mine), most) end
      end
      if trickle_out > 0 then
        deny = max(min(deny, most), 20000)
      else
        most = 3600000000
        if stock_out > 0 then most = 60000000 end
        deny = max(min(deny, most), 5000)
      end
    end
  end
  if on_share and lent == 0 then deny = max(win_end - now, 1000) end
  if win_end > 0 then
    reset = max(win_end - now, 0)
  elseif rate > 0 and burst > level then
    reset = lasts(burst - level, flow)
  end
end

if on_share then fresh = 2 end -- and not a guess any more
local record = {
  stock, pile, trickle, demand, in_slot, t, expires, win, fresh, began, admitted, denied, lent,
  number, floor(lent / MICRO), trickle, floor(pile / MICRO), term, deny, fallback, win, win_end, gen,
  in_slot, remaining, reset,
}
local state = {
  level, carry, last, offset, since, win, win_end, gen, stock_out, pile_out, trickle_out, demand_out, capacity,
}
for at, sums in pairs(ring) do
  local n = #state
  state[n + 1], state[n + 2], state[n + 3], state[n + 4], state[n + 5] = at, sums[1], sums[2], sums[3], sums[4]
end
redis.call('HSET', key, 's', cmsgpack.pack(state), holder, cmsgpack.pack(record))

-- Keep the bucket until it is full, its window is over, and no lease can be live.
local keep = 2 * LONG + 2 * SLOT
if win_end > 0 then
  keep = max(keep, win_end - now)
else
  keep = max(keep, lasts(max(burst - level, 0), flow))
end
redis.call('PEXPIRE', key, floor(keep / 1000) + 1)

-- Sweep records of the long gone, looking at a few: it changes no answer. A newcomer
-- looks at two, so that those who come once and never again do not pile up.
local look = 0
if not rec then look = 2 elseif number % 8 == 0 then look = 1 end
if look > 0 then
  local some = redis.call('HRANDFIELD', key, look, 'WITHVALUES')
  for i = 1, #some, 2 do
    if some[i] ~= 's' and some[i] ~= holder and cmsgpack.unpack(some[i + 1])[7] + RECORD_LIFE <= t then
      redis.call('HDEL', key, some[i])
    end
  end
end

local answer = {}
for i = 14, #record do answer[i - 13] = record[i] end
return answer
