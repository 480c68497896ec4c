-- Grants what is ready, at once: an id, its fence and all that a claim shows, for each.

local function granted(message, bytes, lease, at)
  return { message.id, message.fence, bytes, message.attempt, message.deliveries, message.priority, message.key or '',
    message.headers or '', message.enqueuedAt, lease, at }
end

local function grant(queue, message, found, request)
  leave_ready(queue, message, found)
  queue.fences = queue.fences + 1
  message.state, message.fence, message.consumer, message.taken = CLAIMED, queue.fences, request.consumer, request.taken
  message.deliveries = message.deliveries + 1
  local at = instant(now + request.lease)
  expect(queue, at)
  put(queue.claimed, message.id, at)
  write(queue, message)
  return at
end

-- Messages in queue order, those that are past their time or without a record done away with.
local function next_ready(queue, limit)
  local members, ids, messages = range(queue.ready, 0, limit - 1), {}, {}
  for index, found in ipairs(members) do ids[index] = id_of(found) end
  look_up(queue, ids)
  for index, id in ipairs(ids) do
    local message = read(queue, id)
    if not message then strike_out(queue, queue.ready, members[index])
    elseif message.expiresAt ~= NEVER and message.expiresAt <= now then expire(queue, message)
    else messages[#messages + 1] = { message, members[index] } end
  end
  return messages, #members
end

local function without_payload(queue, message)
  lift(queue, message)
  bury(queue, message, 'its payload is missing from the store', message.attempt)
end

local function grant_ready(queue, request, claims)
  local messages, looked = next_ready(queue, request.max - #claims)
  local ids = {}
  for index, each in ipairs(messages) do ids[index] = each[1].id end
  for index, bytes in ipairs(payloads_of(queue, ids)) do
    local message, found = messages[index][1], messages[index][2]
    if bytes then
      local at = grant(queue, message, found, request)
      claims[#claims + 1] = granted(message, bytes, request.lease, at)
    else without_payload(queue, message) end
  end
  return looked
end

local function next_due(queue)
  local at = next_at(queue)
  return at == math.huge and -1 or math.max(0, at - now)
end

local function claim_reply(queue, claims)
  return { claims, queue.paused, next_due(queue) }
end

verbs.claim = function(queue, take)
  local request = { max = tonumber(take()), lease = tonumber(take()), taken = take() == '1' or nil, consumer = take() }
  local claims = {}
  if request.lease > queue.lease then queue.lease = request.lease end
  if queue.paused == 0 then
    local budget = request.max + STEP
    repeat
      local looked = grant_ready(queue, request, claims)
      if looked == 0 then looked = maintain(queue, STEP) end
      budget = budget - looked
    until #claims >= request.max or looked == 0 or budget <= 0
  end
  if #claims == 0 then tidy(queue) end
  return claim_reply(queue, claims)
end

-- What is kept of an answer: which claims, not their payloads, which are in the store as long as the claims are. To
-- nothing there is nothing to keep: asked again it may as well find something.
remembered.claim = function(reply)
  if #reply[1] == 0 then return nil end
  local kept = {}
  for index, claim in ipairs(reply[1]) do kept[index] = { claim[1], claim[2], claim[10] } end
  return kept
end

-- The claims that are still live, as they were granted at first.
recalled.claim = function(queue, kept)
  local claims, ids = {}, {}
  for index, each in ipairs(kept) do ids[index] = each[1] end
  look_up_claims(queue, ids)
  for _, each in ipairs(kept) do
    local message, at = live_claim(queue, each[1], whole(each[2]))
    local bytes = message and payloads_of(queue, { message.id })[1]
    if bytes then claims[#claims + 1] = granted(message, bytes, each[3], at) end
  end
  return claim_reply(queue, claims)
end

verbs.sweep = function(queue, take)
  take()
  tidy(queue)
  local moved = queue.moved
  queue.moved = 0
  return { moved, next_due(queue) }
end
