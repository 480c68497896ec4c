-- Stores a batch in its order, all or nothing; 1 for each that is stored, 0 for a duplicate.

-- Which bound so much more would exceed. `leaving` is a message of the same queue that makes room in the same step.
local function exceeded(queue, length, bytes, leaving)
  local settings = queue.settings
  if leaving then
    length, bytes = length - 1, bytes - leaving.size
  end
  if settings.maxLength then
    local held = redis.call('ZCARD', queue.ready) + redis.call('ZCARD', queue.delayed) + redis.call('ZCARD', queue.claimed)
    if held + length > settings.maxLength then return 'maxLength' end
  end
  if settings.maxBytes and queue.bytes + bytes > settings.maxBytes then return 'maxBytes' end
end

-- The message that arrived before all others, whatever its priority: the first of each place.
local function oldest_ready(queue)
  local oldest
  local function consider(found)
    if not oldest or string.sub(found, 1, 21) < string.sub(oldest, 1, 21) then oldest = found end
  end
  if not queue.settings.stepMs then
    local from = '-inf'
    while true do
      local first = redis.call('ZRANGEBYSCORE', queue.ready, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if not first[1] then return oldest end
      consider(first[1])
      from = '(' .. first[2]
    end
  end
  for _, found in ipairs(redis.call('ZRANGE', queue.ready, 0, 999)) do consider(found) end
  return oldest
end

local function refusal(queue, length, bytes, leaving)
  local bound = exceeded(queue, length, bytes, leaving)
  if length == 0 or not bound then return nil end
  if queue.settings.whenFull ~= 'reject' then
    bound = exceeded(queue, length - redis.call('ZCARD', queue.ready), bytes - queue.readyBytes, leaving)
    if not bound then return nil end
  end
  return { '!', 'full', queue.prefix, bound, string.format('%.0f', queue.settings[bound]) }
end

local function clear(queue, length, bytes)
  while length > 0 and exceeded(queue, length, bytes) do
    local oldest = oldest_ready(queue)
    if not oldest then return end
    local message = read(queue, id_of(oldest))
    lift(queue, message)
    queue.dropped = queue.dropped + 1
    forget(queue, message)
  end
end

-- Makes room for messages that come back, or says why there is none.
local function make_room(queue, length, bytes)
  local refused = refusal(queue, length, bytes)
  if refused then return refused end
  clear(queue, length, bytes)
end

-- What admitting a batch will do, or why it is refused; nothing is changed yet.
local function plan(queue, batch, leaving)
  local bytes = 0
  for _, message in ipairs(batch) do
    if #message.payload > queue.settings.maxPayloadBytes then
      return nil, { '!', 'limit', 'maxPayloadBytes', string.format('%.0f', queue.settings.maxPayloadBytes),
        tostring(#message.payload) }
    end
    bytes = bytes + message.size
  end
  if not exceeded(queue, #batch, bytes, leaving) then return { length = #batch, bytes = bytes } end
  local fresh, seen, length = {}, {}, 0
  bytes = 0
  for index, message in ipairs(batch) do
    fresh[index] = not seen[message.id] and find(queue, message.id) == nil
    if fresh[index] then
      seen[message.id] = true
      length, bytes = length + 1, bytes + message.size
    end
  end
  local refused = refusal(queue, length, bytes, leaving)
  if refused then return nil, refused end
  return { fresh = fresh, length = length, bytes = bytes }
end

local function add(queue, source)
  local known = read(queue, source.id)
  if known then
    if not outlived(queue, known) then return false end
    redis.call('ZREM', queue.ended, known.id)
  end
  queue.enqueued = queue.enqueued + 1
  queue.bytes = queue.bytes + source.size
  redis.call('HSET', queue.payloads, source.id, source.payload)
  local message = { id = source.id, priority = source.priority, size = source.size, enqueuedAt = now, ttl = source.ttl,
    bury = source.bury, expiresAt = source.ttl and instant(now + source.ttl) or NEVER, attempt = 1, deliveries = 0,
    fence = 0, key = source.key, headers = source.headers }
  if source.delay > 0 then delay(queue, message, source.delay) else arrive(queue, message) end
  if message.expiresAt ~= NEVER then expect(queue, message.expiresAt) end
  return true
end

local function admit(queue, batch, planned)
  clear(queue, planned.length, planned.bytes)
  local statuses = {}
  for index, message in ipairs(batch) do
    local wanted = not planned.fresh or planned.fresh[index]
    statuses[index] = wanted and add(queue, message) and 1 or 0
  end
  return statuses
end

-- A message as a driver sends it.
local function take_message(take)
  local message = { id = take(), priority = tonumber(take()), delay = tonumber(take()), ttl = tonumber(take()),
    bury = take() == '1', key = take(), headers = take(), size = tonumber(take()), payload = take() }
  if message.key == '' then message.key = nil end
  if message.headers == '' then message.headers = nil end
  return message
end

local function take_batch(take)
  local batch = {}
  for index = 1, tonumber(take()) do batch[index] = take_message(take) end
  return batch
end

verbs.enqueue = function(queue, take)
  local batch = take_batch(take)
  local planned, refused = plan(queue, batch)
  if refused then return refused end
  return admit(queue, batch, planned)
end
