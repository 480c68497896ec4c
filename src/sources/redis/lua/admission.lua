-- Whether a queue has room for a batch, and storing it: in its order, all or nothing.

-- The most priorities among which the oldest message is looked for.
local MOST_PRIORITIES = 512

-- Which bound so much more would exceed. `leaving` is a message of the same queue that makes room in the same step.
local function exceeded(queue, count, bytes, leaving)
  local rules = queue.rules
  if leaving then
    count, bytes = count - 1, bytes - leaving.size
  end
  if rules.maxLength then
    local held = changes.length(queue.ready) + changes.length(queue.delayed) + changes.length(queue.claimed)
    if held + count > rules.maxLength then return 'maxLength' end
  end
  if rules.maxBytes and queue.bytes + bytes > rules.maxBytes then return 'maxBytes' end
end

-- The message that arrived before all others, whatever its priority: the first of each priority, compared.
local function oldest_ready(queue)
  if queue.rules.stepMs then return changes.range(queue.oldest, 0, 0)[1] end
  changes.flush(queue.ready)
  local oldest
  local from = '-inf'
  for _ = 1, MOST_PRIORITIES do
    local found = redis.call('ZRANGEBYSCORE', queue.ready.key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not found[1] then break end
    if not oldest or moves.arrival_of(found[1]) < moves.arrival_of(oldest) then oldest = found[1] end
    from = '(' .. found[2]
  end
  return oldest
end

local function full(queue, bound)
  return queues.refused('full', queue.prefix, bound, queue.rules[bound])
end

-- Why so much more is refused, though what is due be done and what may be dropped were dropped.
local function refusal(queue, count, bytes, leaving)
  if count == 0 or not exceeded(queue, count, bytes, leaving) then return nil end
  upkeep().maintain(queue, upkeep().STEP)
  local bound = exceeded(queue, count, bytes, leaving)
  if not bound then return nil end
  if queue.rules.whenFull == 'reject' then return full(queue, bound) end
  bound = exceeded(queue, count - changes.length(queue.ready), bytes - queue.readyBytes, leaving)
  return bound and full(queue, bound)
end

local function clear(queue, count, bytes)
  while count > 0 and exceeded(queue, count, bytes) do
    local oldest = oldest_ready(queue)
    if not oldest then return end
    local message = upkeep().entered(queue, queue.ready, oldest)
    if message then
      moves.lift(queue, message)
      queue.dropped = queue.dropped + 1
      ends().forget(queue, message)
    end
  end
end

-- Makes room for messages that come back, or says why there is none.
local function make_room(queue, count, bytes)
  local refusing = refusal(queue, count, bytes)
  if refusing then return refusing end
  clear(queue, count, bytes)
end

-- What admitting a batch will do, or why it is refused; nothing is stored yet.
local function plan(queue, batch, leaving)
  local bytes, ids = 0, {}
  for index, message in ipairs(batch) do
    if #message.payload > queue.rules.maxPayloadBytes then
      return nil, queues.refused('limit', 'maxPayloadBytes', queue.rules.maxPayloadBytes, #message.payload)
    end
    bytes, ids[index] = bytes + message.size, message.id
  end
  changes.look_up(queue, ids)
  if not exceeded(queue, #batch, bytes, leaving) then return { count = #batch, bytes = bytes } end
  local fresh, seen, count = {}, {}, 0
  bytes = 0
  for index, message in ipairs(batch) do
    fresh[index] = not seen[message.id] and moves.find(queue, message.id) == nil
    if fresh[index] then
      seen[message.id] = true
      count, bytes = count + 1, bytes + message.size
    end
  end
  local refusing = refusal(queue, count, bytes, leaving)
  if refusing then return nil, refusing end
  return { fresh = fresh, count = count, bytes = bytes }
end

local function add(queue, source)
  local held = changes.read(queue, source.id)
  if held and not moves.outlived(queue, held) then return false end
  queue.enqueued = queue.enqueued + 1
  queue.bytes = queue.bytes + source.size
  changes.put_payload(queue, source.id, source.payload)
  -- The outcome that it takes the place of is still listed.
  local again = held and math.min(held.again + 1, 255) or 0
  local message = { id = source.id, flags = source.bury and changes.BURY or 0, again = again,
    priority = source.priority, size = source.size, attempt = 1, deliveries = 0, enqueuedAt = queues.now, fence = 0,
    at = 0, consumer = '', key = source.key, headers = source.headers, rest = '' }
  moves.set_ttl(message, source.ttl)
  if source.delay > 0 then moves.delay(queue, message, source.delay) else moves.arrive(queue, message) end
  return true
end

local function admit(queue, batch, planned)
  clear(queue, planned.count, planned.bytes)
  local statuses = {}
  for index, message in ipairs(batch) do
    local wanted = not planned.fresh or planned.fresh[index]
    statuses[index] = wanted and add(queue, message) and 1 or 0
  end
  return statuses
end

-- A message as a driver sends it: what nearly all are comes as three arguments.
local function take_message(take)
  local id, priority, payload = take(), take(), take()
  if priority ~= '' then
    return { id = id, priority = tonumber(priority), delay = 0, bury = false, key = '', headers = '', size = #payload,
      payload = payload }
  end
  return { id = id, payload = payload, priority = tonumber(take()), delay = tonumber(take()), ttl = tonumber(take()),
    bury = take() == '1', key = take(), headers = take(), size = tonumber(take()) }
end

local function take_batch(take)
  local batch = {}
  for index = 1, tonumber(take()) do batch[index] = take_message(take) end
  return batch
end

return { plan = plan, admit = admit, take_batch = take_batch, make_room = make_room, oldest_ready = oldest_ready }
