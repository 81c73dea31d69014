-- step.lua begins every step: it reads the bucket and the holder's record, answers a repeated
-- number, and knows what all algorithms share. bucket.lua, log.lua or slots.lua follows it, then finish.lua,
-- in one script, which answers one holder's renewal of one bucket atomically. It is the
-- step of package lease, where the reasons are. Numbers are doubles holding whole numbers below
-- 2^53, computed in the same order as there: the answers are equal to the last digit, and a test
-- holds both to it.
--
-- KEYS: the bucket, a hash: field b is its state, l its log, r:<holder> a holder's record. The state and each record
-- name the format that they, and the log, are in. What a later build wrote is left as it is; what an earlier one wrote is
-- read. Whoever changes a format raises FORMAT, and reads the one before.
-- ARGV: 1 now in us ('' = this node's clock)  2 holder  3 number  4 began
--   5 admitted  6 denied  7 told  8 held  9 waiting  10 largest  11 in use  12 final (0|1)
--   13 window  14 trickle  15 expires in us  16 generation  17 algorithm
--   18 refill, micro-tokens/s, not rounded  19 capacity, micro-tokens  20 epsilon, ppm
--   21-23 window start, end, end of the next  24 borrow, micro-tokens  25 lockout us
--   26 hold us  27 prorate (0|1)  28 period us  29 units  30 elapsed us  31 reserved  32 alone (0|1)
--   and only where any of them is not 0: 33 remembers since us  34 lost (0|1)  35 ledgered (0|1)
--   36-39 the ledger's figure: window, used, through, whole (0|1)
--   and of a relay: 40-43 what it keeps: stock, pile, micro-tokens; trickle; its demand
-- Returns {number, tokens, trickle, pile, ttl us, deny us, fallback, window start,
--   window end, next, generation, expiry slot, remaining, reset us, tokens out, trickles out, and unsure where
--   it is not 0}, {-1} for a stale number, {-2} where the ledger is to be asked first, or {-3} where what is there
--   is in a later format.
local FORMAT = 101 -- before 101 it was not named, and the first number was the algorithm's
local MICRO, SLOT = 1000000, 500000
local FIRST, SHORT, LONG, LONGEST = 200000, 500000, 10000000, 120000000
local RECORD_LIFE, MAX_STEP = 600000000, 2 * 10000000 + 2 * 500000
local SMOOTHING, GUESS_PER, SAMPLE, FEW, FAINT = 300000, 100000, 8, 2, 100
local MOST_UNITS, MOST_DEMAND, MOST = 1000000000, 1000000000000, 9007199254740992
local TOO_LARGE, LEAP = 5000, 1000000
local RELAYED = 1125899906842624 -- 2^50
local FIGURE_WAIT, FIGURE_SKEW, FIGURE_EVERY = 30000000, 15000000, 15000000
local FIXED, LEAKY, SLIDING, LOG, SLOTS = 2, 3, 4, 5, 6 -- 1 is a token bucket
local floor, ceil, min, max, abs, sqrt = math.floor, math.ceil, math.min, math.max, math.abs, math.sqrt

local key = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * MICRO + tonumber(time[2])
end
local holder = 'r:' .. ARGV[2]
local number, began = tonumber(ARGV[3]), tonumber(ARGV[4])
local admitted, denied, told = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local held, waiting, largest = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local reserved = tonumber(ARGV[31])
local final, window, expires_in = ARGV[12] == '1', tonumber(ARGV[13]), tonumber(ARGV[15])
local algorithm, flow, burst, epsilon = tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[20])
local borrow, lockout, hold, elapsed = tonumber(ARGV[24]), tonumber(ARGV[25]), tonumber(ARGV[26]), tonumber(ARGV[30])
local refills = algorithm == 1 or algorithm == LEAKY
local rate = refills and max(floor(flow), 1) or 0

local remembers, lost, ledgered = tonumber(ARGV[33] or 0), ARGV[34] == '1', ARGV[35] == '1'
local figure_window, figure_used, figure_through = tonumber(ARGV[36] or 0), tonumber(ARGV[37] or 0), tonumber(ARGV[38] or 0)

local kept_stock, kept_pile, kept_trickle = tonumber(ARGV[40] or 0), tonumber(ARGV[41] or 0), tonumber(ARGV[42] or 0)
local kept_demand = tonumber(ARGV[43] or 0) -- 0 for who is no relay

local function muldiv(a, b, c) return floor(a * b / c) end
local function whole(v) return floor(v / MICRO) * MICRO end
local function lasts(gain, flow)
  if flow <= 0 then return MOST end
  return min(ceil(gain * 1e6 / flow), MOST)
end

-- The state. The ring holds sums of stock, pile, trickle, demand and next by slot.
local kind, level, carry, last, offset, since, capacity, win, win_end, gen
local locked, suspect, withheld, before, left, edge, last_edge
local stock_out, pile_out, trickle_out, demand_out, next_out
local unsure, moved, lapsed, used_up, returned -- used_up is Spent of the bucket
local most_asked, most_asked_until = 0, 0 -- Largest and LargestUntil of the bucket
local ring, leases, last_slot = {}, 0, 0

local fields = redis.call('HMGET', key, 'b', holder, 'l')
local born = not fields[1]
if born and ledgered then
  local start = tonumber(ARGV[21])
  if now >= tonumber(ARGV[22]) then start = tonumber(ARGV[22]) end
  if start < remembers and figure_window ~= start then return {-2} end
end
if fields[1] then
  local s = cmsgpack.unpack(fields[1])
  if s[1] > FORMAT then return {-3} end
  if s[1] < 101 then
    table.insert(s, 1, FORMAT)
    table.insert(s, 27, 0)
    table.insert(s, 28, 0)
  end
  kind, level, carry, last, offset, since, capacity, win, win_end, gen =
    s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11]
  locked, suspect, withheld, before, left, edge, last_edge = s[12], s[13], s[14], s[15], s[16], s[17], s[18]
  stock_out, pile_out, trickle_out, demand_out, next_out = s[19], s[20], s[21], s[22], s[23]
  unsure, moved, lapsed, used_up, returned, most_asked, most_asked_until = s[24], s[25], s[26], s[27], s[28], s[29], s[30]
  for i = 31, #s, 6 do
    ring[s[i]] = {s[i + 1], s[i + 2], s[i + 3], s[i + 4], s[i + 5]}
    leases, last_slot = leases + 1, max(last_slot, s[i])
  end
else
  kind, level, carry, last, offset, since, capacity, win, win_end, gen =
    algorithm, burst, 0, now, 0, now, burst, 0, 0, 1
  locked, suspect, withheld, before, left, edge, last_edge = 0, 0, 0, 0, 0, now, now
  stock_out, pile_out, trickle_out, demand_out, next_out = 0, 0, 0, 0, 0
  unsure, moved, lapsed, used_up, returned = 0, 0, 0, 0, 0
end

-- The holder's record: 1-5 stock, pile, trickle, demand, next, 6 slot, 7 start, 8 expires, 9 window,
-- 10 window of next, 11 fresh (1) or on its share (until when), 12 largest, 13 began, 14 admitted, 15 denied,
-- 16 lent, 17 algorithm, 18 declared trickle, 19-35 the answer, 36 ahead, 37 the format.
local function gone(record, at) return record[8] + RECORD_LIFE <= at and record[6] * SLOT <= at end
local rec = fields[2] and cmsgpack.unpack(fields[2])
if rec and (rec[37] or 0) > FORMAT then return {-3} end

-- The bucket's own clock never runs backward, and no faster than the holder's.
local slack = 0
if refills or algorithm == SLIDING then slack = muldiv(rate + burst, epsilon, 2 * MICRO) end
local t, ahead, most, proven = now + offset, 0, MOST * 2, nil
local tolerance = LEAP
if refills then tolerance = min(lasts(slack, rate), MAX_STEP) end
if stock_out + pile_out + trickle_out > 0 then most = max(last + max(MAX_STEP, LONG + hold + 2 * SLOT), last_slot * SLOT) end
if rec and not gone(rec, last) and elapsed > 0 then
  proven = rec[7] + elapsed - rec[36]
  most = min(most, max(last, proven + tolerance))
end
if last - t >= LEAP then
  local to = last
  if proven and rec[13] == began and rec[14] == told then to = max(to, min(proven, most)) end
  t, offset = to, offset + to - t
elseif t < last then
  t = last
elseif t > most then
  if t - most >= LEAP then offset = offset - (t - most) end
  t = most
end
if proven then ahead = min(max(t - proven, 0), tolerance) end
if rec and gone(rec, t) then rec = nil end
local newcomer = not rec
if rec then
  if number == rec[19] then
    local answer = {}
    for i = 19, rec[35] > 0 and 35 or 34 do answer[i - 18] = rec[i] end
    return answer
  end
  if number < rec[19] then return {-1} end
end
local forgotten = (not rec and expires_in > 0 and t >= suspect and tonumber(ARGV[16]) >= gen)
  or (rec and rec[13] == began and rec[14] < told)
  or (born and lost and now < remembers + LONG)

-- Another algorithm begins full, less what is out of the old one.
if kind ~= algorithm then
  level = max(burst - (stock_out + pile_out), 0)
  kind, carry, last, since, capacity, win, win_end, gen = algorithm, 0, t, t, burst, 0, 0, gen + 1
  suspect, withheld, before, left, edge, last_edge = 0, 0, 0, 0, t, t
  stock_out, pile_out, trickle_out, demand_out, next_out = 0, 0, 0, 0, 0
  unsure, moved, lapsed, used_up, returned = 0, 0, 0, 0, 0
  ring, leases, most_asked, most_asked_until = {}, 0, 0, 0
end
local changed = rec and rec[17] ~= algorithm
if changed then rec = nil end

-- A limit that changed: what was used stays used.
if burst ~= capacity then
  local was, by = level, burst - capacity
  if ARGV[27] == '1' and algorithm == FIXED and win_end > now then
    by = whole(muldiv(by, min(win_end - now, win_end - win), win_end - win))
  end
  level = level + by
  if refills and by < 0 then -- what is lent comes back to what is left of the new one, not on top
    level = max(was + stock_out + by, min(was + stock_out, 0)) - stock_out
  end
  capacity = burst
end

local spent, refused = admitted - told, 0
if rec and rec[13] == began then
  spent, refused = max(admitted - rec[14], 0), max(denied - rec[15], 0)
elseif changed then
  spent = 0
end
spent, refused = min(spent, MOST_UNITS), min(refused, MOST_UNITS)

local refill_to -- what time does to the level, by algorithm

-- drawn is what leases draw of the rate.
local function drawn(rate)
  if last < suspect then return max(trickle_out, rate - muldiv(rate, epsilon, MICRO)) end
  return trickle_out
end

-- What forgotten leases might have held may be granted, unless the ledger has still to say what was used.
local function release_withheld()
  if unsure > 0 then return end
  level = level + withheld
  withheld = 0
end

local function refill(to)
  if suspect > last then
    refill_to(min(to, suspect))
    if to < suspect then return end
    release_withheld()
  end
  refill_to(to)
end

-- advance brings the bucket to the time `to`; leases fall out whose slots are over.
local function advance(to)
  local slot = floor(last / SLOT) + 1
  while leases > 0 and slot * SLOT <= to do
    local sums = ring[slot]
    if sums then
      refill(slot * SLOT)
      stock_out, pile_out, trickle_out = stock_out - sums[1], pile_out - sums[2], trickle_out - sums[3]
      demand_out, next_out = demand_out - sums[4], next_out - sums[5]
      if algorithm == SLOTS then level = level + sums[1] end
      if ledgered and sums[1] > 0 then lapsed, moved = 1, now end
      ring[slot] = nil
      leases = leases - 1
    end
    slot = slot + 1
  end
  refill(to)
end

-- add puts sums into the ring at a slot and into the totals; below zero they leave it.
local function add(slot, a, b, c, d, e)
  stock_out, pile_out, trickle_out = stock_out + a, pile_out + b, trickle_out + c
  demand_out, next_out = demand_out + d, next_out + e
  local sums = ring[slot]
  if not sums then
    ring[slot] = {a, b, c, d, e}
    leases = leases + 1
    return
  end
  sums[1], sums[2], sums[3], sums[4], sums[5] = sums[1] + a, sums[2] + b, sums[3] + c, sums[4] + d, sums[5] + e
end

-- release takes a live lease out of the sums.
local function release()
  if not rec or rec[6] * SLOT <= t then return end
  local a, b, c, e = rec[1], rec[2], rec[3], rec[5]
  if algorithm == FIXED and rec[9] ~= win then
    a, b, c, e = rec[10] == win and e or 0, 0, 0, 0
  end
  add(rec[6], -a, -b, -c, -rec[4], -e)
  local sums = ring[rec[6]]
  if sums[1] == 0 and sums[2] == 0 and sums[3] == 0 and sums[4] == 0 and sums[5] == 0 then
    ring[rec[6]] = nil
    leases = leases - 1
  end
end

local steady = false -- demand is what it was, but for noise

-- Demand, in thousandths of a unit a second, and whether it is a guess (1).
local function demand_now()
  if kept_demand > 0 then return min(kept_demand, MOST_DEMAND), rec and 0 or 1 end
  if not rec and expires_in > 0 and tonumber(ARGV[14]) > 0 then
    return max(min(floor(tonumber(ARGV[14]) / 1000), MOST_DEMAND), 1), 0
  end
  if not rec or rec[4] == 0 then
    return min(muldiv(max(waiting, 1), 1e9, GUESS_PER), MOST_DEMAND), 1
  end
  local own, elapsed = elapsed, max(t - rec[7], 1000)
  if own >= elapsed + LEAP and rec[13] == began and rec[14] == told then elapsed = own end
  local asked = spent + refused + waiting - reserved
  local old = rec[4]
  local expected = old * elapsed / 1e9
  steady = algorithm == 1 and epsilon > 0 and t >= suspect and lockout == 0 and kept_demand == 0 -- grows of bucket.lua
    and abs(asked - expected) <= expected / 4 + 2 * sqrt(expected) + FEW
  local same = steady and (asked > 0 or expected < 3)
  if asked == 0 and elapsed >= FIRST / 2 and not same then return 1, 0 end
  local seen = muldiv(asked, 1e9, elapsed)
  if algorithm == SLOTS then
    seen = muldiv(spent + refused, 1e9, elapsed) + muldiv(waiting, 1e9, max(elapsed, GUESS_PER))
  end
  seen = min(seen, MOST_DEMAND)
  if rec[11] == 1 then return max(seen, 1), 0 end
  local over = SMOOTHING
  if same and old >= FAINT then over = max(over, min(muldiv(SAMPLE, 1e9, old), LONG)) end
  return max(old + muldiv(seen - old, elapsed, elapsed + over), 1), 0
end

-- serve is what of the tokens that can be had goes to the requests that wait.
local function serve(can)
  local w, l = waiting * MICRO, largest * MICRO
  if w <= can then return w end
  if l <= MICRO then return can end
  if w % l == 0 then return can - can % l end
  if l > can then return min(w - l, can) end
  return can
end

local function lowest() return -burst - borrow end

-- forget begins the bucket again; rebuild does it by algorithm.
local function forget(rebuild)
  suspect = t + LONG
  local was = tonumber(ARGV[16])
  gen = (was < RELAYED and max(gen, was) or gen) + 1
  rebuild()
end

local function withhold()
  local within = whole(muldiv(burst, epsilon, MICRO))
  if level > within then
    withheld = withheld + (level - within)
    level = within
  end
end

-- What becomes of the record.
local demand, fresh, seen_largest, declared, on_share = 0, 0, 0, 0, 0
local lent, stock, trickle, pile, following, next_window = 0, 0, 0, 0, 0, 0
local tokens, granted_pile, term, deny, fallback, from, through, remaining, reset = 0, 0, 0, 0, 0, 0, 0, 0, 0
local expires, in_slot, keep, asks = t, 0, 0, 0
local unheard, share = 0, nil -- share: the trickle that is answered, where more is kept

-- hang puts the new lease into the sums and the ring.
local function hang(term, hold)
  expires = t + term
  in_slot = floor((t + term + max(min(term, LONG), hold) + SLOT) / SLOT)
  local grain = floor(hold / (64 * SLOT))
  if grain > 1 then in_slot = (floor(in_slot / grain) + 1) * grain end
  add(in_slot, stock, pile, trickle, demand, following)
end
