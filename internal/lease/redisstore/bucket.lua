-- bucket.lua is the step of all that refills or counts in windows: token_bucket, leaky_bucket,
-- fixed_window and sliding_window (level.go, window.go, sliding.go and share.go).
local FEWEST, SPARSE, NEXT_LEAD, SINGLY, REPAY_IN = 8, 64, 2000000, 10000000, 4
local sliding, fixed, leaky = algorithm == SLIDING, algorithm == FIXED, algorithm == LEAKY

local function clip(at)
  if sliding then
    level = min(level, burst - left)
    return
  end
  local out = stock_out + pile_out
  local full = min(burst, burst + slack - out)
  if level >= full then
    level = max(full, 0)
    carry = 0
    if trickle_out <= 0 then since = at end
  end
  if trickle_out <= 0 then return end
  local room = max(burst + slack - out - level, 0)
  since = max(since, at - min(muldiv(room, 1e6, trickle_out), at))
end

local function sliding_rate() return muldiv(before, 1e6, win_end - win) end

-- slide lets what counts of the window before become less, and draws the trickles.
local function slide(to)
  if to <= last or win_end == 0 then return end
  local now_left = min(left, muldiv(before, max(win_end + offset - to, 0), win_end - win))
  local gained = left - now_left
  left = now_left
  local gone_by = (to - last) * drawn(sliding_rate()) / 1e6 + carry
  local whole_part = floor(min(gone_by, 4503599627370496))
  carry = gone_by - whole_part
  level = max(level + gained - whole_part, min(level, lowest()))
end

refill_to = function(to)
  if sliding then
    slide(to)
  else
    local own = flow - drawn(rate)
    if own > 0 and to > last then
      local gained = (to - last) * own / 1e6 + carry
      local whole_part = floor(gained)
      carry = gained - whole_part
      level = level + min(whole_part, 4503599627370496)
    end
  end
  last = to
  clip(to)
end

-- Windows turn when the store's clock has come to the edge.
local function turn_at(at_edge)
  local at = max(min(at_edge + offset, t), last)
  advance(at)
  level = level + left
  left = 0
  local used = max(burst - level, 0)
  local out = min(used, max(stock_out + pile_out - muldiv(burst, epsilon, 2 * MICRO), 0))
  before = used - out
  left = before
  level = min(level, burst)
  last_edge, edge = edge, at
end

if fixed or sliding then
  local start, stop = tonumber(ARGV[21]), tonumber(ARGV[22])
  if now >= stop then start, stop = stop, tonumber(ARGV[23]) end
  if sliding and win == 0 then
    win, win_end = start, stop
    edge = t - max(min(now - start, t), 0)
    last_edge = edge
  elseif start <= win then
    win_end = max(win_end, stop)
  elseif sliding then
    local first = min(win_end, start)
    turn_at(first)
    if first < start then
      win, win_end = first, start
      turn_at(start)
    end
    win, win_end = start, stop
  else
    local borrowed = 0
    if win > 0 and borrow > 0 then borrowed = max(min(level, 0), -borrow) end
    if win_end ~= start then
      next_out = 0
      for _, sums in pairs(ring) do sums[5] = 0 end
    end
    win, win_end = start, stop
    level = burst + borrowed - next_out
    withheld = 0
    unsure, moved, lapsed, used_up, returned = 0, now, 0, 0, 0
    stock_out, pile_out, trickle_out, next_out = next_out, 0, 0, 0
    for _, sums in pairs(ring) do sums[1], sums[2], sums[3], sums[5] = sums[5], 0, 0, 0 end
  end
end
advance(t)
if sliding then
  rate = sliding_rate()
  flow = rate
end

if forgotten then
  forget(function()
    if fixed then return withhold() end
    level = min(level, 0)
    if sliding then
      local length = win_end - win
      before = burst
      left = muldiv(before, min(max(win_end - now, 0), length), length)
      rate = sliding_rate()
      flow = rate
    end
  end)
end
if ledgered and (forgotten or (born and win < remembers and unsure == 0)) then
  unsure = forgotten and now or 1
  withhold()
end
release()

-- Put back what was not spent; take out what was overspent.
local micro_spent, micro_held, micro_refused = spent * MICRO, held * MICRO, refused * MICRO
local function ours(at) return not fixed or at == win end

if not rec then
  if ours(window) or window == 0 then -- 0: on credit, before it had any
    if expires_in == 0 then
      level = max(level - micro_spent, lowest())
    elseif t < suspect or unsure > 0 then
      local back = micro_held
      if fixed then
        back = min(back, withheld)
        withheld = withheld - back
      end
      level = min(level + back, burst)
    end
  end
elseif sliding then
  local stop = max(min(t, rec[6] * SLOT), rec[7])
  local all = rec[16] + muldiv(rec[3], stop - rec[7], 1e6)
  if stop < t then
    local over = micro_spent - all
    if over > 0 then
      local span, length = t - stop, win_end - win
      local here = muldiv(over, t - max(stop, edge), span)
      local earlier = min(muldiv(over, max(edge - max(stop, last_edge), 0), span), max(burst - before, 0))
      local counts = min(muldiv(earlier, max(edge + length - t, 0), length), earlier)
      level = max(level - here - counts, lowest())
      before = before + earlier
      left = left + counts
    end
  elseif micro_spent > all then
    level = max(level - (micro_spent - all), lowest())
  else
    local given = min(micro_held, all - micro_spent)
    level = level + given
    local back = all - micro_spent - given
    local earlier = muldiv(rec[3], max(min(stop, edge) - max(rec[7], last_edge), 0), 1e6)
    local older = muldiv(rec[3], max(min(stop, last_edge) - rec[7], 0), 1e6)
    if rec[7] < last_edge then
      older = older + (rec[16] - rec[1])
    elseif rec[7] < edge then
      earlier = earlier + (rec[16] - rec[1])
    end
    back = back - min(back, older)
    local n = min(back, earlier, before)
    if n > 0 then
      back = back - n
      local counts = muldiv(n, left, before)
      before = before - n
      left = left - counts
      level = level + counts
    end
    level = level + back
    clip(t)
  end
elseif not ours(window) then
  if ours(rec[10]) then level = level + rec[5] end -- it had not begun with it
elseif not ours(rec[9]) then
  if ours(rec[10]) then
    local given = min(micro_held, rec[5])
    local over = max(micro_spent - rec[16] - (rec[5] - given), 0)
    if rec[6] * SLOT <= t then given = 0 end
    level = max(level + given - over, lowest())
  else
    -- Out of contact the holder went on with its share of each window, this one too:
    -- what is left of it stays with the holder.
    local share = muldiv(rec[25], win_end - win, 1e6)
    level = max(level - share + min(micro_held, share), lowest())
  end
else
  local stop = max(min(t, rec[6] * SLOT), rec[7])
  local all = rec[16] + muldiv(rec[3], stop - rec[7], 1e6)
  local given = min(micro_held, all)
  if stop < t then given = 0 end -- no longer in the sums: what was not spent of it is void
  local back = all - micro_spent - given
  if kept_demand > 0 and back > 0 then
    if rec[13] == began then unheard = min(back, rec[20] * MICRO + muldiv(rec[3], LONG, 1e6)) end
    back = 0
  end
  -- Who begins another conversation does not say what it spent in the last one.
  if stop < t and back >= 0 and fixed and rec[7] >= returned and rec[13] == began then
    level = level + back -- nothing refilled it: it was in no sum, nor in the level
    clip(t)
  end
  if stop == t or back < 0 then
    level = level + given
    if back >= 0 then
      local start = max(min(since, stop), rec[7])
      level = level + min(back, rec[16] + muldiv(rec[3], stop - start, 1e6))
    elseif stop == t or fixed then
      level = max(level + back, lowest())
    else
      local over = -back
      local recent = min(over, muldiv(rec[3], t - max(stop, min(since, t)), 1e6))
      level = max(level - recent, lowest())
      if level > 0 and micro_refused > 0 then
        local take = muldiv(over - recent, micro_refused, micro_spent + micro_refused)
        if trickle_out == 0 and rec[3] > 0 then -- the first to come back stands for all
          take = take >= muldiv(level, rec[3], rate) and level or muldiv(take, rate, rec[3])
        end
        local gained = muldiv(rate, min(max(t - since, 0), MAX_STEP), 1e6)
        level = max(level - take, min(level, gained))
      end
    end
    clip(t)
  end
end

-- The ledger's figure.
local function void()
  return lapsed == 1 and stock_out == 0 and level < MICRO and unsure == 0 and borrow == 0 and ARGV[27] == '0'
end
if ledgered then
  if spent > 0 then
    moved = now
    if (window == win and (not rec or rec[9] == win)) or window == 0 then
      used_up = min(used_up + micro_spent, MOST_UNITS * MICRO)
    end
  end
  if figure_window == win and figure_through > 0 then
    local used = min(figure_used, MOST_UNITS) * MICRO
    if void() and ARGV[39] == '1' and figure_through >= moved + FIGURE_SKEW then
      level, lapsed, returned = max(level, burst - max(used, used_up)), 0, t
    end
    if unsure > 0 and (figure_through >= unsure or now >= unsure + FIGURE_WAIT) then
      unsure, used_up = 0, max(used_up, used)
      if t >= suspect then release_withheld() end
    end
    local over = level + withheld - (burst - used)
    if over > 0 and ARGV[27] == '0' then
      local n = min(over, withheld)
      withheld = withheld - n
      level = max(level - (over - n), min(level, lowest()))
      used_up = max(used_up, used)
    end
  end
end

demand, fresh = demand_now()
seen_largest = largest
if rec then seen_largest = max(largest, floor(rec[12] * 127 / 128)) end
-- A holder that came back in the middle of a window keeps to its share for a term.
if rec and fixed and window == win and rec[10] ~= win then
  if rec[9] ~= win or (ARGV[32] == '1' and 8 * (micro_spent - rec[16]) > rec[16]) then
    on_share = t + LONG
  elseif rec[11] > t then
    on_share = rec[11]
  end
end
if fixed then from, through = win, win_end end

if final then
  demand = 0
else
  local mine = max(demand, 1)
  local all = demand_out + mine
  local length, micro_waiting = win_end - win, waiting * MICRO
  local is_locked = t < locked
  if largest >= most_asked then
    most_asked, most_asked_until = largest, t + LONG
  elseif t >= most_asked_until then
    most_asked, most_asked_until = max(largest, floor(most_asked / 2)), t + LONG
  end
  -- What of a relay's lease stays.
  if kept_demand > 0 then
    local free = max(rate - trickle_out, 0)
    local room = max(whole(burst + slack - stock_out - pile_out - max(level - micro_held, 0)), 0)
    if not rec and expires_in > 0 then
      kept_trickle = min(kept_trickle, tonumber(ARGV[14]), free)
      kept_stock = min(kept_stock, room)
      kept_pile = min(kept_pile, room - kept_stock)
    elseif not rec or rec[6] * SLOT <= t then
      kept_stock, kept_pile, kept_trickle = 0, 0, 0
    else
      kept_trickle = min(kept_trickle, rec[3], free)
      kept_pile = min(kept_pile, rec[1] + rec[2])
      kept_stock = min(kept_stock, rec[1] + rec[2] - kept_pile, room)
    end
    level = level - kept_stock
    stock_out, pile_out = stock_out + kept_stock, pile_out + kept_pile
    clip(t)
    pile_out = pile_out - kept_pile
  end
  local apart = burst -- what more may lie with holders apart from each other
  if 16 * most_asked * MICRO > burst then
    apart = max(floor(burst / 16) - stock_out - pile_out, 0)
    if rate > 0 and 5 * most_asked * MICRO >= rate and all <= SINGLY then apart = 0 end
  end
  local WORTH, NOISE = 2 * MICRO * 1000000 / SHORT, 2 * MICRO
  local grows = algorithm == 1 and epsilon > 0 and t >= suspect and lockout == 0 and kept_demand == 0
  local overloaded = 5 * all >= floor(rate / 1000) * 7
  local size = seen_largest * MICRO
  local large = seen_largest > 1
    and (fresh == 1 or size > mine * 500 or (16 * size >= burst and size > mine * 62))

  -- The trickle, and what may pile up from it.
  if rate > 0 and lockout == 0 and not is_locked and not (sliding and length < 2 * SLOT) then
    local shared = rate - min(floor(max(-level - borrow, 0) / REPAY_IN), floor(rate / 8)) -- in debt it repays
    trickle = min(mine * 1200, muldiv(shared, mine, all), shared - trickle_out)
    if t < suspect then
      if rec then
        declared = max(rec[18], rec[3])
      elseif expires_in > 0 then
        declared = tonumber(ARGV[14])
      end
      trickle = min(declared, mine * 1200, shared - trickle_out)
    end
    local small = trickle < WORTH
    if small and not (grows and all > 10000 and rec and fresh == 0 and seen_largest <= 1
        and (overloaded or (muldiv(trickle_out + trickle, 100, rate) <= 85 and level > floor(burst / 2)))
        and muldiv(burst, mine, all) >= 2 * NOISE and muldiv(trickle, LONG, 1e6) >= MICRO) then
      trickle = 0
    elseif leaky then
      local room = max(burst + slack - stock_out - pile_out, 0)
      pile = MICRO + max(whole(min(muldiv(burst, mine, all), room)) - MICRO, 0)
    else
      local room = max(burst + slack - stock_out - pile_out - level, 0)
      local span = max(muldiv(slack, 1e6, rate), min(muldiv(room, 500000, rate), SHORT / 2))
      if sliding then span = min(span, floor(length / 64)) end
      pile = whole(muldiv(trickle, span, 1e6))
      if small then pile = max(pile, whole(min(muldiv(floor(burst / 2), mine, all), NOISE))) end
      if pile < MICRO then
        if pile_out + MICRO > slack + floor(burst / 4) then
          trickle, pile = 0, 0
        else
          pile = MICRO
        end
      end
      if large and pile < seen_largest * MICRO then trickle, pile = 0, 0 end
      pile = min(pile, whole(apart))
      if pile < MICRO then trickle, pile = 0, 0 end
    end
  end

  -- The stock.
  if not is_locked then
    local there = level
    if sliding then
      local over = trickle_out - sliding_rate() -- of what is known now: what came back may be of the window before
      if over > 0 then
        local to = t
        for slot, sums in pairs(ring) do
          if sums[3] > 0 then to = max(to, slot * SLOT) end
        end
        there = there - muldiv(over, to - t, 1e6)
      end
    end
    local can = whole(max(there, 0))
    lent = serve(whole(max(there + borrow, 0)))
    if there >= MICRO and lockout == 0 and not leaky then
      stock = muldiv(can, mine, all)
      if fixed then stock = floor(stock / 2) end
      local plenty, use = level > floor(burst / 2), mine * 1000
      if rec and rec[11] == 1 then use = mine * 250 end
      if plenty and trickle == 0 then
        use = use * 10
      elseif plenty and fresh == 1 then
        use = max(use, min(10 * use, 2 * FEWEST * MICRO))
      elseif plenty then
        use = max(use, min(10 * use, SPARSE * MICRO))
      elseif trickle == 0 then
        use = use * 4
      elseif trickle < WORTH then
        use = max(4 * use, 2 * MICRO)
      end
      stock = min(stock, use)
      if trickle == 0 and not fixed then stock = min(stock, floor(can / 4)) end
      if plenty and not fixed then stock = max(stock, min(floor(can / 64), 2 * FEWEST * MICRO)) end
      stock = stock - stock % MICRO
      if trickle > 0 and trickle < WORTH then stock = max(stock, min(whole(floor(can / 16)), 2 * MICRO)) end
      if trickle == 0 and stock < FEWEST * MICRO then stock = 0 end
      stock = min(stock, whole(apart))
      if large and stock < 2 * seen_largest * MICRO then stock = 0 end
      lent = max(min(stock, can), lent)
    end
  end
  if on_share > 0 then lent = max(min(micro_held, whole(level)), 0) end
  if lockout > 0 and not is_locked and lent < micro_waiting then
    locked, is_locked = t + lockout, true
  end
  level = level - lent
  -- What requests wait for is spent at once; what is reserved may come back.
  local fits = max(burst + slack - stock_out - pile_out - max(level, 0), 0)
  local kept_back = min(lent, reserved * MICRO, fits)
  local unserved = lent < micro_waiting
  stock = max(lent - micro_waiting, 0) + kept_back
  if pile > 0 then
    local most = whole(burst + slack - stock_out - stock - pile_out)
    if leaky then
      pile = min(pile, MICRO + max(most, 0))
    else
      pile = min(pile, most)
      if pile < MICRO then trickle, pile = 0, 0 end
    end
  end

  stock_out, stock = stock_out - kept_stock, stock + kept_stock
  pile = max(pile, kept_pile)
  lent = lent + kept_stock + unheard
  share, trickle = trickle, max(trickle, kept_trickle)

  -- One token a holder counts against nothing: that is a leaky bucket's bound on coinciding requests.
  local all_of_pile = pile
  if leaky and pile > 0 then pile = pile - MICRO end

  -- The term.
  do
    local pressed = rate > 0 and (muldiv(trickle_out + trickle, 100, rate) > 85 or level < floor(burst / 4))
    local known = rec and rec[11] ~= 1 and rec[23] > 0
    local pressed_term = min(max(muldiv(32, 1e9, mine), 2 * SHORT), LONG)
    if fresh == 1 and rate > 0 and level > floor(burst / 2) then
      term = 2 * SHORT
    elseif fresh == 1 then
      term = FIRST
    elseif pressed and share > 0 then
      term = SHORT
      if share < WORTH then term = floor(pressed_term / 2) end
      if level + stock_out + stock > floor(burst / 2) and all < floor(rate / 950) and known then
        term = max(term, min(2 * rec[23], 4 * SHORT))
      end
      if known and grows and steady and overloaded and 16 * share >= 15 * muldiv(rate, mine, all) then
        term = max(term, min(2 * rec[23], pressed_term))
      end
    elseif rec and rec[11] == 1 then
      term = 4 * FIRST
    elseif not known then
      term = SHORT
    elseif grows and steady and share > 0 and muldiv(trickle_out + share, 100, rate) <= 85 and level > floor(burst / 2) then
      term = min(LONGEST, 4 * rec[23])
    else
      term = min(LONG, 4 * rec[23])
    end
  end
  local kept = hold
  if fixed then
    local to_edge = win_end - now
    if to_edge > 0 and to_edge <= min(NEXT_LEAD, floor(length / 4)) and lockout == 0 and on_share == 0 and not is_locked then
      following = floor(muldiv(max(burst - next_out, 0), mine, all) / 2)
      following = whole(min(following, mine * 10000))
      if following < FEWEST * MICRO then following = 0 else next_window = win_end end
    end
    if following > 0 then
      term = max(term, to_edge + SHORT)
    else
      term = max(min(term, to_edge), 1000)
    end
  elseif sliding then
    term = max(min(term, floor((length - SLOT) / 2)), 1000)
    kept = min(hold, max(length - SLOT - term, 0))
  end
  hang(term, kept)
  clip(t)

  tokens, granted_pile = floor((lent - unheard) / MICRO), floor(all_of_pile / MICRO)
  fallback = share
  if rate > 0 then fallback = max(share, muldiv(rate, mine, all)) end
  remaining = max(floor((level + stock_out - kept_back) / MICRO), 0)

  -- What to deny without asking.
  local there = level + borrow
  if there >= MICRO then
    if unserved then
      deny = TOO_LARGE
    elseif share > 0 and grows and overloaded and level < floor(burst / 4) then
      if share >= WORTH then
        if term > SHORT and level < floor(rate / 16) then deny = floor(term / 2) end
      elseif muldiv(level, mine, all) < MICRO then
        deny = term
      elseif muldiv(level, mine, all) < 2 * MICRO then
        deny = floor(term / 4)
      end
    end
  elseif lockout > 0 and not unserved then
    deny = 0
  elseif fixed then
    deny = max(win_end - now, 1000)
    if stock_out > 0 or t < suspect or unsure > 0 then
      deny = min(deny, SHORT)
    elseif void() then
      deny = min(deny, FIGURE_EVERY)
    end
  else
    local own, most = flow - trickle_out, term
    if (trickle_out > 0 and 2 * share < muldiv(rate, mine, all)) or t < suspect then most = min(most, FIRST / 2) end
    deny = most
    if own > 0 then
      deny = lasts(MICRO - there, own)
      if share > 0 and not leaky then
        deny = lasts(min(FEWEST * MICRO, burst) - there, own)
        deny = min(muldiv(min(deny, most), all, mine), most)
      end
    end
    if leaky and own > 0 and trickle_out > 0 then
      deny = max(min(deny, most), 1000)
    elseif trickle_out > 0 or t < suspect then
      deny = max(min(deny, most), 20000)
    else
      if sliding then
        local to_edge = max(win_end - now, 1000)
        if there + left >= MICRO then
          deny = min(lasts(MICRO - there, flow), to_edge)
        else
          deny = to_edge + muldiv(MICRO - there - left, length, max(burst - level - left, 1))
        end
      end
      most = 3600000000
      if stock_out > 0 then most = SHORT end
      deny = max(min(deny, most), 5000)
    end
  end

  if fixed then
    -- The holder's share of a window, were it spread over it.
    fallback = muldiv(muldiv(burst, 1e6, length), mine, all)
    reset = max(win_end - now, 0)
    if on_share > 0 and lent == 0 then deny = max(min(win_end - now, on_share - t), 1000) end
  elseif sliding then
    fallback = max(trickle, muldiv(muldiv(burst, 1e6, length), mine, all))
    if level < burst then
      reset = max(win_end - now, 0)
      if level + left < burst then reset = reset + length end
    end
  elseif rate > 0 and burst > level then
    reset = lasts(burst - level, flow)
  end
  if is_locked then deny = max(locked - t, 1000) end
end
if on_share > 0 then fresh = on_share end -- and not a guess any more

if fixed then
  keep = win_end - now
elseif sliding then
  keep = max(tonumber(ARGV[23]) - now, 2 * win_end - win - now)
else
  keep = lasts(max(burst - level, 0), flow)
end
if ledgered then
  if tokens > 0 or following > 0 then moved = now end
  if unsure > 0 then asks = unsure elseif void() then asks = moved + FIGURE_SKEW end
end
