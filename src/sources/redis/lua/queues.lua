-- A queue as one call sees it: its settings and counters, read once and written once.

local now = now_of_server()

-- What people look at is kept as text, under its name.
local TOTALS = { 'enqueued', 'acked', 'forwarded', 'purged', 'expired', 'cancelled', 'dropped' }

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
  local stored = redis.call('HMGET', key, 'format', 'rules', 'state', unpack(TOTALS))
  queue = {
    prefix = prefix, key = key, stored = stored, hints = {},
    format = tonumber(stored[1] or FORMAT), rules = rules_in(stored[2]),
    messages = prefix .. ':m', payloads = prefix .. ':p', ended = prefix .. ':e',
    -- Messages that this call has read, false for one that is not there, and those that it has changed.
    known = {}, changed = {}, newPayloads = {}, oldPayloads = {}, ends = {},
    ready = { key = prefix .. ':r' }, oldest = { key = prefix .. ':o' }, delayed = { key = prefix .. ':d' },
    claimed = { key = prefix .. ':c' }, expiring = { key = prefix .. ':t', byId = true },
    dead = { key = prefix .. ':x', byId = true },
  }
  unpack_state(queue, stored[3])
  for index, name in ipairs(TOTALS) do queue[name] = tonumber(stored[index + 3] or 0) end
  opened[prefix] = queue
  return queue
end

local function save_counters(queue)
  local changed, stored, state = {}, queue.stored, pack_state(queue)
  for index, name in ipairs(TOTALS) do
    if queue[name] ~= tonumber(stored[index + 3] or 0) then
      changed[#changed + 1] = name
      changed[#changed + 1] = queue[name]
    end
  end
  if state ~= (stored[3] or NO_STATE) then
    changed[#changed + 1] = 'state'
    changed[#changed + 1] = state
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
  now = now, opened = opened,
}
