-- The moves of a message between its states.

-- Above every place of a message for which waiting makes up for priority.
local STRICT = 4503599627370496
-- Members have eleven digits for the time of arrival; this is in the year 2527.
local FARTHEST = 17592186044415
local TRIM_STEP_LEAST = 10

-- Equal places are served in this order.
local function member(message)
  return message.arrival .. message.id
end

local function id_of(found)
  return string.sub(found, 20)
end

-- What members are ordered by.
local function arrival_of(found)
  return string.sub(found, 1, 19)
end

local function arrived_at(found)
  return tonumber(string.sub(found, 1, 11), 16)
end

-- With ageing all priorities up to the cap share one scale of places; the others come after it.
local function place(queue, message)
  local step, cap = queue.rules.stepMs, queue.rules.cap
  if not step then return message.priority end
  if message.priority > cap then return STRICT + message.priority end
  return math.min(arrived_at(message.arrival) + message.priority * step, STRICT - 1)
end

local function outlived(queue, message)
  return message.state >= DONE and message.at + queue.rules.outcomesMs <= queues.now
end

-- The message that holds an id: one that is here, is dead, or has an outcome that is retained.
local function find(queue, id)
  local message = changes.read(queue, id)
  if message and outlived(queue, message) then return nil end
  return message
end

-- Something is due at this instant. Those who wait know of the nearest one so far, and are told of an earlier one.
local function expect(queue, at)
  if queue.nextAt > 0 and at >= queue.nextAt then return end
  -- Not known yet what is due first: whoever looks next finds out.
  if queue.nextAt > 0 then queue.nextAt = at end
  queue.sooner = math.min(queue.sooner or at, at)
end

-- Looks anew for what is due next.
local function look_ahead(queue)
  queue.nextAt = math.min(changes.first(queue.delayed), changes.first(queue.claimed), changes.first(queue.expiring))
end

-- Those who wait have claimed all there was: they are told when that was nothing, and there is something now.
local function wake(queue)
  if queue.wasEmpty == nil then queue.wasEmpty = redis.call('EXISTS', queue.ready.key) == 0 end
  queue.filled = true
end

-- What this call has to tell to those who wait.
local function tell(queue)
  if queue.roused or (queue.filled and queue.wasEmpty) then queues.hint(queue, 'ready')
  elseif queue.sooner then queues.hint(queue, 'due:' .. queues.digits(math.max(0, queue.sooner - queues.now))) end
end

local function leave_ready(queue, message, found)
  queue.wasEmpty = queue.wasEmpty or false
  changes.take_out(queue.ready, found)
  if queue.rules.stepMs then changes.take_out(queue.oldest, found) end
  queue.readyBytes = queue.readyBytes - message.size
  if message.expiresAt ~= NEVER then changes.take_out(queue.expiring, message.id) end
end

-- Takes a message off the place where it is. It must be put somewhere in the same call.
local function lift(queue, message)
  if message.state == CLAIMED then changes.take_out(queue.claimed, member(message))
  elseif message.state == READY then leave_ready(queue, message, member(message))
  elseif message.state == DELAYED then
    changes.take_out(queue.delayed, member(message))
    if message.expiresAt ~= NEVER then changes.take_out(queue.expiring, message.id) end
  elseif message.state == DEAD then changes.take_out(queue.dead, message.id) end
end

local function set_expiry(queue, message)
  if message.expiresAt == NEVER then return end
  expect(queue, message.expiresAt)
  changes.put(queue.expiring, message.id, message.expiresAt)
end

-- A message that nobody takes within its ttl, from now, expires.
local function set_ttl(message, ttl)
  message.expiresAt = ttl and queues.instant(queues.now + ttl) or NEVER
  if ttl then message.extra = { ttl = ttl } end
end

local function put_back(queue, message)
  wake(queue)
  message.state, message.consumer = READY, ''
  local found = member(message)
  changes.put(queue.ready, found, place(queue, message))
  if queue.rules.stepMs then changes.put(queue.oldest, found, 0) end
  queue.readyBytes = queue.readyBytes + message.size
  set_expiry(queue, message)
  changes.write(queue, message)
end

local function arrive_at(queue, message, at)
  message.arrival = string.format('%011x%08x', at, queue.arrivals)
end

-- The number of an arrival. When they begin anew, time goes on by a millisecond, so that order is kept.
local function count_arrival(queue)
  queue.latest = math.max(queue.latest, queues.now)
  if queue.arrivals + 1 >= ARRIVALS then queue.latest = queue.latest + 1 end
  queue.arrivals = (queue.arrivals + 1) % ARRIVALS
end

local function arrive(queue, message)
  count_arrival(queue)
  arrive_at(queue, message, queue.latest)
  put_back(queue, message)
end

local function delay(queue, message, ms)
  message.state = DELAYED
  count_arrival(queue)
  local at = math.min(queues.instant(queues.now + ms), FARTHEST)
  arrive_at(queue, message, at)
  expect(queue, at)
  changes.put(queue.delayed, member(message), at)
  set_expiry(queue, message)
  changes.write(queue, message)
end

-- Those who asked to be told of its end read again.
local function tell_end(queue, message)
  if not changes.has(message, changes.WATCHED) then return end
  queues.hint(queue, 'outcome:' .. message.id)
  changes.set_flag(message, changes.WATCHED, false)
end

-- Ends a lifted message. Its outcome is retained, and with it the id.
local function finish(queue, message, state, result, reason)
  queue.bytes = queue.bytes - message.size
  tell_end(queue, message)
  changes.drop_payload(queue, message.id)
  queue.ends[#queue.ends + 1] = message.id
  message.state, message.at, message.flags, message.expiresAt = state, queues.now, 0, NEVER
  message.consumer, message.rest, message.extra = '', '', nil
  if result or reason then message.extra = { result = result, reason = reason } end
  changes.write(queue, message)
end

-- Forgets the oldest outcome, unless the same id has ended once more since.
local function forget_outcome(queue, id)
  local message = changes.read(queue, id)
  if not message then return end
  if message.again > 0 then
    message.again = message.again - 1
    changes.write(queue, message)
  elseif message.state >= DONE then changes.remove(queue, message) end
end

-- Forgets outcomes that are too old, and notes when the oldest that is left ended: not before now, if none is left.
local function trim_old(queue, limit)
  local ids = redis.call('LRANGE', queue.ended, 0, limit - 1)
  for _, id in ipairs(ids) do
    local message = changes.read(queue, id)
    if message and message.again == 0 and message.state >= DONE and not outlived(queue, message) then
      queue.endedSince = message.at
      return
    end
    redis.call('LPOP', queue.ended)
    forget_outcome(queue, id)
  end
  if #ids < limit then queue.endedSince = queues.now end
end

-- Lists what has ended, and forgets what is too old, a step that keeps up with what ends. What is too many is forgotten
-- when all is saved.
local function list_ends(queue)
  local limit = 2 * #queue.ends + TRIM_STEP_LEAST
  changes.in_chunks('RPUSH', queue.ended, queue.ends)
  queue.ends, queue.mayTrim = {}, true
  if queue.endedSince + queue.rules.outcomesMs <= queues.now then trim_old(queue, limit) end
end

return {
  member = member, id_of = id_of, arrival_of = arrival_of, arrived_at = arrived_at, place = place,
  outlived = outlived, find = find, expect = expect, look_ahead = look_ahead, tell = tell,
  leave_ready = leave_ready, lift = lift, set_ttl = set_ttl, put_back = put_back, arrive = arrive, delay = delay,
  tell_end = tell_end, finish = finish, forget_outcome = forget_outcome, list_ends = list_ends,
}
