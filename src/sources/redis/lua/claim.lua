-- Grants what is ready, at once: an id, its fence and all that a claim shows, for each.

local function granted(queue, message, lease, at)
  return { message.id, string.format('%.0f', message.fence), redis.call('HGET', queue.payloads, message.id) or '',
    message.attempt, message.deliveries, message.priority, message.key or '', message.headers or '',
    string.format('%.0f', message.enqueuedAt), string.format('%.0f', lease), string.format('%.0f', at) }
end

local function grant(queue, message, lease, consumer, taken)
  redis.call('ZREM', queue.ready, member(message))
  queue.readyBytes = queue.readyBytes - message.size
  if message.expiresAt ~= NEVER then redis.call('ZREM', queue.expiring, message.id) end
  queue.fences = queue.fences + 1
  message.state, message.fence, message.consumer, message.taken = CLAIMED, queue.fences, consumer, taken
  message.deliveries = message.deliveries + 1
  local at = instant(now + lease)
  redis.call('ZADD', queue.claimed, at, message.id)
  write(queue, message)
  return granted(queue, message, lease, at)
end

local function grant_ready(queue, max, lease, consumer, taken, claims)
  for _, found in ipairs(redis.call('ZRANGE', queue.ready, 0, max - #claims - 1)) do
    local message = read(queue, id_of(found))
    if message.expiresAt ~= NEVER and message.expiresAt <= now then expire(queue, message)
    else claims[#claims + 1] = grant(queue, message, lease, consumer, taken) end
  end
end

local function next_due(queue)
  local at = next_at(queue)
  return at == math.huge and -1 or string.format('%.0f', math.max(0, at - now))
end

local function claim_reply(queue, claims)
  return { claims, queue.paused, next_due(queue) }
end

verbs.claim = function(queue, take)
  local max, lease, taken, consumer = tonumber(take()), tonumber(take()), take() == '1', take()
  local claims = {}
  queue.lease = math.max(queue.lease, lease)
  if queue.paused == 0 then
    repeat
      grant_ready(queue, max, lease, consumer, taken, claims)
    until #claims >= max or maintain(queue, STEP) == 0
  end
  return claim_reply(queue, claims)
end

-- What is kept of an answer: which claims, not their payloads, which are in the store as long as the claims are.
remembered.claim = function(reply)
  local kept = {}
  for index, claim in ipairs(reply[1]) do kept[index] = { claim[1], claim[2], claim[10] } end
  return kept
end

-- The claims that are still live, as they were granted at first.
recalled.claim = function(queue, kept)
  local claims = {}
  for _, each in ipairs(kept) do
    local message = live_claim(queue, each[1], each[2])
    if message then
      local at = tonumber(redis.call('ZSCORE', queue.claimed, message.id))
      claims[#claims + 1] = granted(queue, message, tonumber(each[3]), at)
    end
  end
  return claim_reply(queue, claims)
end
