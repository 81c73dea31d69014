-- log.lua is the step of a sliding window log (log.go): the time of every unit granted in the last
-- period, oldest first, in field l: time, units, time, units. A step costs as much as there are entries.
local period, units = tonumber(ARGV[28]), tonumber(ARGV[29])
local entries = fields[3] and cmsgpack.unpack(fields[3]) or {}

refill_to = function(to)
  local n = 1
  while entries[n] and entries[n] + period <= to do
    level = level + entries[n + 1] * MICRO
    n = n + 2
  end
  if n > 1 then
    local rest = {}
    for i = n, #entries do rest[i - n + 1] = entries[i] end
    entries = rest
  end
  last = to
end

local function note(at, n)
  local size = #entries
  if size > 0 and entries[size - 1] == at then
    entries[size] = entries[size] + n
  else
    entries[size + 1], entries[size + 2] = at, n
  end
end

local function enter(n)
  if n <= 0 then return end
  level = level - n * MICRO
  note(t, n)
end

local function overspent(n) enter(min(n, floor((level - lowest()) / MICRO))) end

local function take_out(at, n)
  if n <= 0 then return end
  for i = #entries - 1, 1, -2 do
    if entries[i] == at then
      n = min(n, entries[i + 1])
      entries[i + 1] = entries[i + 1] - n
      level = level + n * MICRO
      if entries[i + 1] == 0 then
        table.remove(entries, i)
        table.remove(entries, i)
      end
      return
    end
  end
end

advance(t)
if forgotten then
  forget(function() -- as if it had been used up evenly
    entries = {}
    for i = 1, units do note(t - period + muldiv(period, i, units), 1) end
    level = 0
  end)
end
release()
if rec then
  local had = rec[16] / MICRO
  if spent > had then overspent(spent - had) else take_out(rec[7], had - spent) end
elseif expires_in == 0 then
  overspent(spent)
end

seen_largest = largest
if not final then
  term = max(min(FIRST, floor(period / 10)), 1000)
  expires = t + term
  if t >= locked then
    lent = serve(whole(max(level + borrow, 0)))
    if lockout > 0 and lent < waiting * MICRO then locked = t + lockout end
  end
  stock = min(lent, reserved * MICRO)
  hang(term, hold)
  tokens = floor(lent / MICRO)
  enter(tokens)
  remaining = max(floor(level / MICRO), 0)
  if #entries > 0 then reset = max(entries[#entries - 1] + period - t, 0) end
  local there = level + borrow
  if t < locked then
    deny = max(locked - t, 1000)
  elseif lockout > 0 then
    deny = 0 -- the next request has to ask: it locks the bucket
  elseif there < MICRO then
    deny = 1000
    for i = 1, #entries, 2 do
      there = there + entries[i + 1] * MICRO
      if there >= MICRO then
        deny = max(entries[i] + period - t, 1000)
        break
      end
    end
    if stock_out > 0 then deny = min(deny, SHORT) end
  elseif lent < waiting * MICRO then
    deny = TOO_LARGE
  end
end
keep = period
redis.call('HSET', key, 'l', cmsgpack.pack(entries))
