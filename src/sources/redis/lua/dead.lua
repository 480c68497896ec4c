-- Dead letters, and what is dropped by hand.

local function find_dead(queue, id)
  local message = moves.find(queue, id)
  return message and message.state == DEAD and message or nil
end

local function take_ids(take)
  local ids = {}
  for index = 1, tonumber(take()) do ids[index] = take() end
  return ids
end

local function revive(queue, message)
  moves.lift(queue, message)
  queue.bytes = queue.bytes + message.size
  local ttl = changes.extra(message).ttl
  message.attempt, message.deliveries, message.consumer, message.at = 1, 0, '', 0
  changes.set_flag(message, changes.CANCEL, false)
  changes.set_flag(message, changes.TAKEN, false)
  message.rest, message.extra = '', nil
  moves.set_ttl(message, ttl)
  moves.arrive(queue, message)
end

verbs.requeueDead = function(queue, take)
  local dead, order, bytes, count, answers = {}, take_ids(take), 0, 0, {}
  changes.look_up(queue, order)
  for index, id in ipairs(order) do
    local message = not dead[id] and find_dead(queue, id)
    answers[index] = message and 1 or 0
    if message then
      dead[id] = message
      bytes, count = bytes + message.size, count + 1
    end
  end
  local refusing = admission().make_room(queue, count, bytes)
  if refusing then return refusing end
  for index, id in ipairs(order) do if answers[index] == 1 then revive(queue, dead[id]) end end
  return answers
end

local function purge(queue, message)
  moves.lift(queue, message)
  queue.purged = queue.purged + 1
  ends().forget(queue, message)
end

verbs.purgeDead = function(queue, take)
  local answers, ids = {}, take_ids(take)
  changes.look_up(queue, ids)
  for index, id in ipairs(ids) do
    local message = find_dead(queue, id)
    if message then purge(queue, message) end
    answers[index] = message and 1 or 0
  end
  return answers
end

local function purge_some(queue, state, limit)
  return upkeep().each(queue, queue[state], changes.range(queue[state], 0, limit - 1), purge)
end

verbs.purge = function(queue, take)
  local limit, purged = tonumber(take()), 0
  for _, state in ipairs(take_ids(take)) do
    if purged < limit then purged = purged + purge_some(queue, state, limit - purged) end
  end
  return purged
end
