-- Grants what is ready, at once. A claim is told by its id, its record as it is now, and its payload.

-- How many messages beyond those that are asked for a claim looks at, where some turn out to have expired.
local MOST_IN_VAIN = 200

local function grant(queue, message, found, request)
  moves.leave_ready(queue, message, found)
  queue.fences = queue.fences + 1
  message.state, message.fence, message.consumer, message.at = CLAIMED, queue.fences, request.consumer, request.at
  if request.taken ~= changes.has(message, changes.TAKEN) then
    changes.set_flag(message, changes.TAKEN, request.taken)
  end
  message.deliveries = message.deliveries + 1
  moves.expect(queue, request.at)
  changes.put(queue.claimed, found, request.at)
  changes.write(queue, message)
end

-- Messages in queue order and their members, those that are past their time or without a record done away with.
local function next_ready(queue, limit)
  local members, ids = changes.range(queue.ready, 0, limit - 1), {}
  if #members == 0 then return {}, members, 0 end
  for index, found in ipairs(members) do ids[index] = moves.id_of(found) end
  changes.look_up(queue, ids)
  local messages, kept = {}, {}
  for index, id in ipairs(ids) do
    local message = changes.read(queue, id)
    if not message or message.state ~= READY or moves.member(message) ~= members[index] then
      upkeep().strike_out(queue, queue.ready, members[index])
    elseif message.expiresAt ~= NEVER and message.expiresAt <= queues.now then ends().expire(queue, message)
    else
      messages[#messages + 1] = message
      kept[#kept + 1] = members[index]
    end
  end
  return messages, kept, #members
end

local function without_payload(queue, message)
  moves.lift(queue, message)
  ends().bury(queue, message, 'its payload is missing from the store', message.attempt)
end

local function tell_claim(claims, message, bytes)
  claims[#claims + 1] = message.id
  claims[#claims + 1] = changes.pack(message)
  claims[#claims + 1] = bytes
end

local function grant_ready(queue, request, claims)
  local messages, members, looked = next_ready(queue, request.max - #claims / 3)
  local ids = {}
  for index, message in ipairs(messages) do ids[index] = message.id end
  for index, bytes in ipairs(changes.payloads_of(queue, ids)) do
    if bytes then
      grant(queue, messages[index], members[index], request)
      tell_claim(claims, messages[index], bytes)
    else without_payload(queue, messages[index]) end
  end
  return looked
end

local function next_due(queue)
  if queue.lookedInVain then return 0 end
  return queue.nextAt == LATEST and -1 or math.max(0, queue.nextAt - queues.now)
end

local function claim_reply(queue, claims)
  return { queue.paused, next_due(queue), claims }
end

verbs.claim = function(queue, take)
  local request = { max = tonumber(take()), lease = tonumber(take()), taken = take() == '1', consumer = take() }
  local claims = {}
  request.at = queues.instant(queues.now + request.lease)
  if request.lease > queue.lease then queue.lease = request.lease end
  if queue.paused == 0 and request.max > 0 then
    local left = request.max + MOST_IN_VAIN
    repeat
      local looked = grant_ready(queue, request, claims)
      left = left - looked
      -- Who asked for more has seen it empty: what comes back later in this call is told.
      if looked == 0 then queue.wasEmpty, queue.filled = true, false end
    until looked == 0 or left <= 0 or #claims >= 3 * request.max
    -- There may be more behind what was done away with: it is asked for again at once.
    queue.lookedInVain = left <= 0 and #claims < 3 * request.max
  end
  if #claims == 0 and queue.tidyAt <= queues.now then upkeep().tidy(queue) end
  return claim_reply(queue, claims)
end

-- What is kept of an answer: the fence of the first claim, which those of the others follow, and the ids. Payloads are
-- in the store as long as the claims are. Of nothing there is nothing to keep: asked again it may as well find
-- something.
remembered.claim = function(reply, queue)
  local claims = reply[3]
  if #claims == 0 then return nil end
  local kept = { queue.known[claims[1]].fence }
  for index = 1, #claims, 3 do kept[#kept + 1] = claims[index] end
  return kept
end

-- The claims that are still live, as they were granted at first.
recalled.claim = function(queue, kept)
  local claims = {}
  local first = table.remove(kept, 1)
  changes.look_up(queue, kept)
  for index, id in ipairs(kept) do
    local message = settle.live_claim(queue, id, first + index - 1)
    local bytes = message and changes.payloads_of(queue, { id })[1]
    if bytes then tell_claim(claims, message, bytes) end
  end
  return claim_reply(queue, claims)
end

verbs.sweep = function(queue, take)
  local limit = tonumber(take())
  -- Steps before it in the same turn have begun with what was due.
  local moved = queue.moved
  queue.moved = 0
  if moved < limit then moved = moved + upkeep().maintain(queue, limit - moved) end
  upkeep().tidy(queue)
  return { moved, next_due(queue) }
end
