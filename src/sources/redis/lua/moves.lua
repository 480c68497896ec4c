-- The moves of a message between its states.

local READY, DELAYED, CLAIMED, DEAD, DONE, ELSEWHERE, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
-- Above every place of a message for which waiting makes up for priority.
local STRICT = 4503599627370496
local ARRIVALS = 1099511627776
local ENDS_PER_MS = 1024
local ERRORS_KEPT = 10
local DELIVERIES_PER_ATTEMPT = 3

-- The time of arrival, then a number that tells those of one millisecond apart: equal places are served in this order.
local function member(message)
  return string.format('%011x%010x', message.arrivedAt, message.arrival) .. message.id
end

local function id_of(found)
  return string.sub(found, 22)
end

-- With ageing all priorities up to the cap share one scale of places; the others come after it.
local function place(queue, message)
  local step, cap = queue.rules.stepMs, queue.rules.cap
  if not step then return message.priority end
  if message.priority > cap then return STRICT + message.priority end
  return math.min(message.arrivedAt + message.priority * step, STRICT - 1)
end

local function outlived(queue, message)
  return message.state >= DONE and message.endedAt + queue.rules.outcomesMs <= now
end

-- The message that holds an id: one that is here, is dead, or has an outcome that is retained.
local function find(queue, id)
  local message = read(queue, id)
  if message and outlived(queue, message) then return nil end
  return message
end

-- The nearest instant at which a message is due, lapses or expires.
local function next_at(queue)
  return math.min(first(queue.delayed), first(queue.claimed), first(queue.expiring))
end

-- Those who wait know of the nearest instant as it was before this call; they are told of an earlier one.
local function expect(queue, at)
  queue.known = queue.known or next_at(queue)
  if at < (queue.sooner or queue.known) then queue.sooner = at end
end

-- Those who wait have claimed all there was: they are told when that was nothing, and there is something now.
local function wake(queue)
  if queue.wasEmpty == nil then queue.wasEmpty = redis.call('EXISTS', queue.ready.key) == 0 end
  queue.filled = true
end

-- What this call has to tell to those who wait.
local function tell(queue)
  if queue.roused or (queue.filled and queue.wasEmpty) then hint(queue, 'ready')
  elseif queue.sooner then hint(queue, 'due:' .. whole(math.max(0, queue.sooner - now))) end
end

local function leave_ready(queue, message, found)
  if queue.wasEmpty == nil then queue.wasEmpty = false end
  take_out(queue.ready, found)
  if queue.rules.stepMs then take_out(queue.oldest, found) end
  queue.readyBytes = queue.readyBytes - message.size
  if message.expiresAt ~= NEVER then take_out(queue.expiring, message.id) end
end

-- Takes a message off the place where it is. It must be put somewhere in the same call.
local function lift(queue, message)
  if message.state == READY then leave_ready(queue, message, member(message))
  elseif message.state == DELAYED then
    take_out(queue.delayed, message.id)
    if message.expiresAt ~= NEVER then take_out(queue.expiring, message.id) end
  elseif message.state == CLAIMED then take_out(queue.claimed, message.id)
  elseif message.state == DEAD then take_out(queue.dead, message.id) end
end

local function set_expiry(queue, message)
  if message.expiresAt == NEVER then return end
  expect(queue, message.expiresAt)
  put(queue.expiring, message.id, message.expiresAt)
end

local function put_back(queue, message)
  wake(queue)
  message.state = READY
  local found = member(message)
  put(queue.ready, found, place(queue, message))
  if queue.rules.stepMs then put(queue.oldest, found, 0) end
  queue.readyBytes = queue.readyBytes + message.size
  set_expiry(queue, message)
  write(queue, message)
end

local function arrive_at(queue, message, at)
  queue.arrivals = (queue.arrivals + 1) % ARRIVALS
  message.arrival = queue.arrivals
  message.arrivedAt = at
end

local function arrive(queue, message)
  queue.latest = math.max(queue.latest, now)
  arrive_at(queue, message, queue.latest)
  put_back(queue, message)
end

local function delay(queue, message, ms)
  message.state = DELAYED
  arrive_at(queue, message, instant(now + ms))
  expect(queue, message.arrivedAt)
  put(queue.delayed, message.id, message.arrivedAt)
  set_expiry(queue, message)
  write(queue, message)
end

local function tell_end(queue, message)
  if message.watched then hint(queue, 'outcome:' .. message.id) end
  message.watched = nil
end

-- Ends a lifted message. Its outcome is retained, and with it the id.
local function finish(queue, message, state, result, reason)
  queue.bytes = queue.bytes - message.size
  queue.ends = math.max(queue.ends + 1, now * ENDS_PER_MS)
  tell_end(queue, message)
  drop_payload(queue, message.id)
  put(queue.ended, message.id, queue.ends)
  write(queue, { id = message.id, state = state, priority = message.priority, size = message.size,
    enqueuedAt = message.enqueuedAt, endedAt = now, attempt = message.attempt, deliveries = message.deliveries,
    expiresAt = NEVER, fence = message.fence, result = result, reason = reason })
end

local function forget(queue, message)
  if message.state ~= DEAD then queue.bytes = queue.bytes - message.size end
  tell_end(queue, message)
  remove(queue, message.id)
end

local function bury(queue, message, reason, attempts)
  queue.bytes = queue.bytes - message.size
  queue.deaths = queue.deaths + 1
  tell_end(queue, message)
  message.state, message.reason, message.attempts = DEAD, reason, attempts
  message.number, message.endedAt, message.expiresAt = queue.deaths, now, NEVER
  put(queue.dead, message.id, queue.deaths)
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
  if message.deliveries < DELIVERIES_PER_ATTEMPT * queue.rules.maxDeliveries then return true end
  bury(queue, message, 'it was handed over ' .. message.deliveries .. ' times without being settled', message.attempt)
  return false
end

local function fail_attempt(queue, message, reason)
  if message.attempt >= queue.rules.maxDeliveries then
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
  local reason = 'the lease lapsed on attempt ' .. message.attempt .. ' of ' .. queue.rules.maxDeliveries
  note_failure(message, reason)
  if fail_attempt(queue, message, reason) then put_back(queue, message) end
end
