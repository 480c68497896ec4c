-- What all verbs share: the rows of a queue, the instant, and the moves of a message between its states.
-- Everything of a queue lies under one prefix, whose hash tag keeps it in one slot of a cluster.

local P = KEYS[1]
-- What each verb does, what is kept of its answer if not all, and how that becomes an answer again.
local verbs, remembered, recalled = {}, {}, {}

local READY, DELAYED, CLAIMED, DEAD, DONE, ELSEWHERE, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
local NEVER = -1
local LATEST = 9007199254740991
-- Above every place of a message for which waiting makes up for priority.
local STRICT = 4503599627370496
local ERRORS_KEPT = 10
local DELIVERIES_PER_ATTEMPT = 3
-- How many messages one call moves at most before it does its own work.
local STEP = 200
local TRIM_STEP = 200

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local COUNTERS = {
  'bytes', 'readyBytes', 'enqueued', 'acked', 'forwarded', 'purged', 'expired', 'cancelled', 'dropped',
  'arrivals', 'latest', 'fences', 'deaths', 'ends', 'paused', 'lease',
}

local opened = {}

local function instant(at)
  return math.min(math.ceil(at), LATEST)
end

local function given(value, default)
  if value == nil or value == cjson.null then return default end
  return value
end

-- All settings of a queue in one table, the defaults for those that nobody has named. `false` is no bound.
local function effective(named)
  local limits, retention, ageing = given(named.limits, {}), given(named.retention, {}), given(named.ageing, {})
  return {
    maxDeliveries = given(named.maxDeliveries, 5),
    stepMs = given(ageing.stepMs, false), cap = given(ageing.cap, false),
    maxLength = given(limits.maxLength, false), maxBytes = given(limits.maxBytes, false),
    maxPayloadBytes = given(limits.maxPayloadBytes, 1048576), whenFull = given(limits.whenFull, 'reject'),
    outcomesMs = given(retention.outcomesMs, 3600000), maxOutcomes = given(retention.maxOutcomes, 10000),
  }
end

-- Settings and counters, read once in a call and written once at its end.
local function open(prefix)
  local queue = opened[prefix]
  if queue then return queue end
  queue = { prefix = prefix, key = prefix .. ':q', hints = {} }
  for name, suffix in pairs({ messages = ':m', payloads = ':p', ready = ':r', delayed = ':d', claimed = ':c',
    dead = ':x', ended = ':e', expiring = ':t' }) do
    queue[name] = prefix .. suffix
  end
  local stored = redis.call('HMGET', queue.key, 'settings', unpack(COUNTERS))
  queue.named = stored[1] and cjson.decode(stored[1]) or {}
  queue.settings = effective(queue.named)
  queue.loaded = {}
  for index, name in ipairs(COUNTERS) do
    queue[name] = tonumber(stored[index + 1] or 0)
    queue.loaded[name] = queue[name]
  end
  opened[prefix] = queue
  return queue
end

local function save()
  for _, queue in pairs(opened) do
    local changed = {}
    for _, name in ipairs(COUNTERS) do
      if queue[name] ~= queue.loaded[name] then
        changed[#changed + 1] = name
        changed[#changed + 1] = string.format('%.0f', queue[name])
      end
    end
    if #changed > 0 then redis.call('HSET', queue.key, unpack(changed)) end
    for _, hint in ipairs(queue.hints) do redis.call('PUBLISH', queue.prefix .. ':h', hint) end
  end
end

-- Tells who waits that something is ready or due earlier; once in a call.
local function wake(queue)
  if queue.told then return end
  queue.told = true
  queue.hints[#queue.hints + 1] = 'ready'
end

local function expect(queue, at)
  if at >= (queue.nextAt or math.huge) then return end
  queue.nextAt = at
  wake(queue)
end

local function earliest(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or math.huge
end

local function next_at(queue)
  return math.min(earliest(queue.delayed), earliest(queue.claimed), earliest(queue.expiring))
end

-- A message as a table; the payload is kept apart, so that moves do not write it again.
local FIELDS = {
  'state', 'priority', 'size', 'enqueuedAt', 'ttl', 'bury', 'expiresAt', 'attempt', 'deliveries', 'fence', 'taken',
  'cancel', 'arrivedAt', 'arrival', 'number', 'endedAt', 'attempts', 'consumer', 'key', 'headers', 'errors', 'reason',
  'result', 'progress', 'watched',
}

local function read(queue, id)
  local packed = redis.call('HGET', queue.messages, id)
  if not packed then return nil end
  local values = cmsgpack.unpack(packed)
  local message = { id = id }
  for index, name in ipairs(FIELDS) do
    if values[index] ~= false then message[name] = values[index] end
  end
  return message
end

local function write(queue, message)
  local values = {}
  -- An array without gaps, which packs to half of what names and values would.
  for index, name in ipairs(FIELDS) do values[index] = message[name] or false end
  redis.call('HSET', queue.messages, message.id, cmsgpack.pack(values))
end

local function member(message)
  return string.format('%011x%010x', message.arrivedAt, message.arrival) .. message.id
end

local function id_of(ready)
  return string.sub(ready, 22)
end

-- With ageing all priorities up to the cap share one scale of places; the others come after it.
local function place(queue, message)
  local step, cap = queue.settings.stepMs, queue.settings.cap
  if not step then return message.priority end
  if message.priority > cap then return STRICT + message.priority end
  return math.min(message.arrivedAt + message.priority * step, STRICT - 1)
end

local function outlived(queue, message)
  return message.state >= DONE and message.endedAt + queue.settings.outcomesMs <= now
end

-- The message that holds an id: one that is here, is dead, or has an outcome that is retained.
local function find(queue, id)
  local message = read(queue, id)
  if message and outlived(queue, message) then return nil end
  return message
end

local function live_claim(queue, id, token)
  local message = read(queue, id)
  if not message or message.state ~= CLAIMED or string.format('%.0f', message.fence) ~= token then return nil end
  local lease = tonumber(redis.call('ZSCORE', queue.claimed, id))
  if not lease or lease <= now then return nil end
  return message
end

-- Takes a message off the place where it is. It must be put somewhere in the same call.
local function lift(queue, message)
  if message.state == READY then
    redis.call('ZREM', queue.ready, member(message))
    queue.readyBytes = queue.readyBytes - message.size
  elseif message.state == DELAYED then redis.call('ZREM', queue.delayed, message.id)
  elseif message.state == CLAIMED then redis.call('ZREM', queue.claimed, message.id)
  else redis.call('ZREM', queue.dead, message.id) end
  if message.expiresAt ~= NEVER and message.state < CLAIMED then redis.call('ZREM', queue.expiring, message.id) end
end

local function put_back(queue, message)
  message.state = READY
  redis.call('ZADD', queue.ready, place(queue, message), member(message))
  queue.readyBytes = queue.readyBytes + message.size
  if message.expiresAt ~= NEVER then redis.call('ZADD', queue.expiring, message.expiresAt, message.id) end
  write(queue, message)
end

local function give_back(queue, message)
  put_back(queue, message)
  wake(queue)
end

local function arrive_at(queue, message, at)
  queue.arrivals = queue.arrivals + 1
  message.arrival = queue.arrivals
  message.arrivedAt = at
end

local function arrive(queue, message)
  queue.latest = math.max(queue.latest, now)
  arrive_at(queue, message, queue.latest)
  give_back(queue, message)
end

local function delay(queue, message, ms)
  message.state = DELAYED
  arrive_at(queue, message, instant(now + ms))
  redis.call('ZADD', queue.delayed, message.arrivedAt, message.id)
  if message.expiresAt ~= NEVER then redis.call('ZADD', queue.expiring, message.expiresAt, message.id) end
  write(queue, message)
  expect(queue, message.arrivedAt)
end

local function tell_end(queue, message)
  if message.watched then queue.hints[#queue.hints + 1] = 'outcome:' .. message.id end
  message.watched = false
end

local function remove(queue, message)
  redis.call('HDEL', queue.messages, message.id)
  redis.call('HDEL', queue.payloads, message.id)
end

-- Ends a lifted message. Its outcome is retained, and with it the id.
local function finish(queue, message, state, result, reason)
  queue.bytes = queue.bytes - message.size
  queue.ends = queue.ends + 1
  tell_end(queue, message)
  redis.call('HDEL', queue.payloads, message.id)
  redis.call('ZADD', queue.ended, queue.ends, message.id)
  write(queue, { id = message.id, state = state, priority = message.priority, size = message.size,
    enqueuedAt = message.enqueuedAt, endedAt = now, number = queue.ends, attempt = message.attempt,
    expiresAt = NEVER, arrivedAt = 0, arrival = 0, fence = message.fence, result = result, reason = reason })
end

local function forget(queue, message)
  if message.state ~= DEAD then queue.bytes = queue.bytes - message.size end
  tell_end(queue, message)
  remove(queue, message)
end

local function bury(queue, message, reason, attempts)
  queue.bytes = queue.bytes - message.size
  queue.deaths = queue.deaths + 1
  tell_end(queue, message)
  message.state, message.reason, message.attempts = DEAD, reason, attempts
  message.number, message.endedAt, message.expiresAt = queue.deaths, now, NEVER
  redis.call('ZADD', queue.dead, queue.deaths, message.id)
  write(queue, message)
end

local function note_failure(message, reason)
  local errors = message.errors or {}
  errors[#errors + 1] = reason
  while #errors > ERRORS_KEPT do table.remove(errors, 1) end
  message.errors = errors
end

-- False if a lifted message has been handed over too often, and is a dead letter now.
local function may_return(queue, message)
  if message.deliveries < DELIVERIES_PER_ATTEMPT * queue.settings.maxDeliveries then return true end
  bury(queue, message, 'it was handed over ' .. message.deliveries .. ' times without being settled', message.attempt)
  return false
end

local function fail_attempt(queue, message, reason)
  if message.attempt >= queue.settings.maxDeliveries then
    bury(queue, message, reason, message.attempt)
    return false
  end
  if not may_return(queue, message) then return false end
  message.attempt = message.attempt + 1
  return true
end

local function end_cancelled(queue, message)
  queue.cancelled = queue.cancelled + 1
  finish(queue, message, CANCELLED)
end

local function expire(queue, message)
  lift(queue, message)
  if message.bury then return bury(queue, message, 'its time to live ran out', message.attempt - 1) end
  queue.expired = queue.expired + 1
  finish(queue, message, EXPIRED)
end

local function lapse(queue, message)
  lift(queue, message)
  if message.cancel then return end_cancelled(queue, message) end
  if message.taken then
    queue.dropped = queue.dropped + 1
    return forget(queue, message)
  end
  local reason = 'the lease lapsed on attempt ' .. message.attempt .. ' of ' .. queue.settings.maxDeliveries
  note_failure(message, reason)
  if fail_attempt(queue, message, reason) then put_back(queue, message) end
end

local function due(key, limit)
  return redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
end

-- Does what has become due; answers how many messages it moved, at most `limit`.
local function maintain(queue, limit)
  local moved = 0
  local function each(key, work)
    for _, id in ipairs(due(key, limit - moved)) do
      work(read(queue, id))
      moved = moved + 1
    end
  end
  each(queue.claimed, function(message) lapse(queue, message) end)
  each(queue.expiring, function(message) expire(queue, message) end)
  each(queue.delayed, function(message)
    redis.call('ZREM', queue.delayed, message.id)
    put_back(queue, message)
  end)
  return moved
end

-- Forgets outcomes that are too many or too old, a bounded number at a time.
local function trim(queue)
  local excess = redis.call('ZCARD', queue.ended) - queue.settings.maxOutcomes
  for index, id in ipairs(redis.call('ZRANGE', queue.ended, 0, TRIM_STEP - 1)) do
    local message = read(queue, id)
    if index > excess and not outlived(queue, message) then return end
    redis.call('ZREM', queue.ended, id)
    remove(queue, message)
  end
end

-- Opens a queue for a call: what is due is done first, as far as one step goes. Answers how much that was.
local function enter(prefix, limit)
  local queue = open(prefix)
  if queue.entered then return queue, 0 end
  queue.entered = true
  local moved = maintain(queue, limit or STEP)
  queue.nextAt = next_at(queue)
  return queue, moved
end
