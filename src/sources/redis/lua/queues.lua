-- A queue as one call sees it: its settings and counters, read once and written once.

-- The layout of what is stored. A newer one is refused.
local FORMAT = 1
local NEVER = -1
local LATEST = 9007199254740991

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local COUNTERS = {
  'bytes', 'readyBytes', 'enqueued', 'acked', 'forwarded', 'purged', 'expired', 'cancelled', 'dropped', 'arrivals',
  'latest', 'fences', 'deaths', 'paused', 'lease', 'ranking', 'audited', 'tidyAt', 'nextAt', 'endedSince',
}

-- The rules of a queue whose settings nobody has named. `false` is no bound.
local DEFAULT_RULES = {
  maxDeliveries = 5, stepMs = false, cap = false, maxLength = false, maxBytes = false, maxPayloadBytes = 1048576,
  whenFull = 'reject', outcomesMs = 3600000, maxOutcomes = 10000,
}

local opened = {}

-- A number as text: Lua itself loses what is beyond 14 digits. As an argument of a command none is lost.
local function digits(number)
  return string.format('%.0f', number)
end

local function instant(at)
  return math.min(math.ceil(at), LATEST)
end

local function refused(...)
  return { '!', ... }
end

-- The nearest instant at which a message is due, lapses or expires is kept as a bound: nothing is due before `nextAt`.
local function open(prefix)
  local queue = opened[prefix]
  if queue then return queue end
  local key = prefix .. ':q'
  local stored = redis.call('HMGET', key, 'format', 'rules', unpack(COUNTERS))
  queue = {
    prefix = prefix, key = key, stored = stored, hints = {},
    format = tonumber(stored[1] or FORMAT), rules = stored[2] and cmsgpack.unpack(stored[2]) or DEFAULT_RULES,
    messages = prefix .. ':m', payloads = prefix .. ':p', ended = prefix .. ':e',
    -- Messages that this call has read, false for one that is not there, and those that it has changed.
    known = {}, changed = {}, newPayloads = {}, oldPayloads = {}, ends = {},
    ready = { key = prefix .. ':r' }, oldest = { key = prefix .. ':o' }, delayed = { key = prefix .. ':d' },
    claimed = { key = prefix .. ':c' }, expiring = { key = prefix .. ':t' }, dead = { key = prefix .. ':x' },
  }
  for index, name in ipairs(COUNTERS) do queue[name] = tonumber(stored[index + 2] or 0) end
  opened[prefix] = queue
  return queue
end

local function save_counters(queue)
  local changed, stored = {}, queue.stored
  for index, name in ipairs(COUNTERS) do
    if queue[name] ~= tonumber(stored[index + 2] or 0) then
      changed[#changed + 1] = name
      changed[#changed + 1] = queue[name]
    end
  end
  if #changed == 0 then return end
  if not stored[1] then
    changed[#changed + 1] = 'format'
    changed[#changed + 1] = FORMAT
  end
  redis.call('HSET', queue.key, unpack(changed))
end

local function hint(queue, text)
  queue.hints[#queue.hints + 1] = text
end

return {
  digits = digits, instant = instant, refused = refused, open = open, save_counters = save_counters, hint = hint,
  FORMAT = FORMAT, NEVER = NEVER, LATEST = LATEST, now = now, DEFAULT_RULES = DEFAULT_RULES, opened = opened,
}
