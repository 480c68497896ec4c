-- A queue as one call sees it: its settings and counters, read once and written once.

local P = string.sub(KEYS[1], 1, -3)
-- What each verb does, what is kept of its answer if not all, and how that becomes an answer again.
local verbs, remembered, recalled = {}, {}, {}

-- The layout of what is stored. A newer one is refused, an older one is brought up to date.
local FORMAT = 1
local NEVER = -1
local LATEST = 9007199254740991

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local COUNTERS = {
  'bytes', 'readyBytes', 'enqueued', 'acked', 'forwarded', 'purged', 'expired', 'cancelled', 'dropped',
  'arrivals', 'latest', 'fences', 'deaths', 'ends', 'paused', 'lease', 'ranking', 'audited', 'tidyAt',
}
local SETS = { ready = ':r', oldest = ':o', delayed = ':d', claimed = ':c', expiring = ':t', dead = ':x', ended = ':e' }

-- The rules of a queue whose settings nobody has named. `false` is no bound.
local DEFAULT_RULES = {
  maxDeliveries = 5, stepMs = false, cap = false, maxLength = false, maxBytes = false, maxPayloadBytes = 1048576,
  whenFull = 'reject', outcomesMs = 3600000, maxOutcomes = 10000,
}

local opened = {}

-- A number as a command wants it: one written out by Lua itself loses what is beyond 14 digits.
local function whole(number)
  return string.format('%.0f', number)
end

local function instant(at)
  return math.min(math.ceil(at), LATEST)
end

local function refused(...)
  return { '!', ... }
end

local function open(prefix)
  local queue = opened[prefix]
  if queue then return queue end
  queue = { prefix = prefix, key = prefix .. ':q', hints = {}, loaded = {}, messages = { key = prefix .. ':m', known = {},
    changed = {} }, payloads = { key = prefix .. ':p', changes = {} } }
  for name, suffix in pairs(SETS) do queue[name] = { key = prefix .. suffix, changes = {} } end
  local stored = redis.call('HMGET', queue.key, 'format', 'rules', unpack(COUNTERS))
  queue.format = tonumber(stored[1] or FORMAT)
  queue.isNew = not stored[1]
  queue.rules = stored[2] and cmsgpack.unpack(stored[2]) or DEFAULT_RULES
  for index, name in ipairs(COUNTERS) do
    queue[name] = tonumber(stored[index + 2] or 0)
    queue.loaded[name] = queue[name]
  end
  opened[prefix] = queue
  return queue
end

local function save_counters(queue)
  local changed = queue.isNew and { 'format', FORMAT } or {}
  for _, name in ipairs(COUNTERS) do
    if queue[name] ~= queue.loaded[name] then
      changed[#changed + 1] = name
      changed[#changed + 1] = whole(queue[name])
    end
  end
  if #changed > (queue.isNew and 2 or 0) then redis.call('HSET', queue.key, unpack(changed)) end
end

local function hint(queue, text)
  queue.hints[#queue.hints + 1] = text
end

local function publish(queue)
  for _, text in ipairs(queue.hints) do redis.call('PUBLISH', queue.prefix .. ':h', text) end
end
