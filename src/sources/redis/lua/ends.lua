-- How messages end otherwise than by an ack: what few calls do.

local ERRORS_KEPT = 10
local DELIVERIES_PER_ATTEMPT = 3

local ends = {}

function ends.forget(queue, message)
  if message.state ~= DEAD then queue.bytes = queue.bytes - message.size end
  moves.tell_end(queue, message)
  changes.drop_payload(queue, message.id)
  changes.remove(queue, message)
end

function ends.bury(queue, message, reason, attempts)
  queue.bytes = queue.bytes - message.size
  queue.deaths = queue.deaths + 1
  moves.tell_end(queue, message)
  local more = changes.extra(message)
  more.reason, more.attempts, more.number = reason, attempts, queue.deaths
  message.state, message.at, message.expiresAt = DEAD, queues.now, NEVER
  changes.put(queue.dead, message.id, queue.deaths)
  changes.write(queue, message)
end

function ends.note_failure(message, reason)
  local more = changes.extra(message)
  local errors = more.errors or {}
  errors[#errors + 1] = reason
  while #errors > ERRORS_KEPT do table.remove(errors, 1) end
  more.errors = errors
end

-- False if a lifted message has been handed over too often, and is a dead letter now.
function ends.may_return(queue, message)
  if message.deliveries < DELIVERIES_PER_ATTEMPT * queue.rules.maxDeliveries then return true end
  local reason = 'it was handed over ' .. message.deliveries .. ' times without being settled'
  ends.bury(queue, message, reason, message.attempt)
  return false
end

function ends.fail_attempt(queue, message, reason)
  if message.attempt >= queue.rules.maxDeliveries then
    ends.bury(queue, message, reason, message.attempt)
    return false
  end
  if not ends.may_return(queue, message) then return false end
  message.attempt = message.attempt + 1
  return true
end

function ends.cancelled(queue, message)
  queue.cancelled = queue.cancelled + 1
  moves.finish(queue, message, CANCELLED)
end

function ends.expire(queue, message)
  moves.lift(queue, message)
  if changes.has(message, changes.BURY) then
    return ends.bury(queue, message, 'its time to live ran out', message.attempt - 1)
  end
  queue.expired = queue.expired + 1
  moves.finish(queue, message, EXPIRED)
end

function ends.lapse(queue, message)
  moves.lift(queue, message)
  if changes.has(message, changes.CANCEL) then return ends.cancelled(queue, message) end
  if changes.has(message, changes.TAKEN) then
    queue.dropped = queue.dropped + 1
    return ends.forget(queue, message)
  end
  local reason = 'the lease lapsed on attempt ' .. message.attempt .. ' of ' .. queue.rules.maxDeliveries
  ends.note_failure(message, reason)
  if ends.fail_attempt(queue, message, reason) then moves.put_back(queue, message) end
end

return ends
