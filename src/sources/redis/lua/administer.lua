-- Settings, listings, dead letters, outcomes: what is asked now and then.

local function remember_settings(queue)
  queue.settings = effective(queue.named)
  redis.call('HSET', queue.key, 'settings', cjson.encode(queue.named))
end

verbs.settings = function(queue, take)
  local proposed, changed = cjson.decode(take()), false
  for name, value in pairs(proposed) do
    if queue.named[name] == nil then
      queue.named[name] = value
      changed = true
    end
  end
  if changed then remember_settings(queue) end
  return cjson.encode(queue.named)
end

-- Puts up to `limit` messages where the present ageing wants them.
local function rerank(queue)
  for _, found in ipairs(redis.call('ZRANGE', queue.ready, 0, -1)) do
    redis.call('ZADD', queue.ready, place(queue, read(queue, id_of(found))), found)
  end
end

verbs.configure = function(queue, take)
  local changes = cjson.decode(take())
  for name, value in pairs(changes) do queue.named[name] = value end
  remember_settings(queue)
  if changes.ageing ~= nil then rerank(queue) end
  trim(queue)
  wake(queue)
  return cjson.encode(queue.named)
end

local function seconds_old(queue)
  local oldest = oldest_ready(queue)
  return oldest and math.max(0, now - tonumber(string.sub(oldest, 1, 11), 16)) or 0
end

verbs.stats = function(queue)
  local reply = { redis.call('ZCARD', queue.ready), redis.call('ZCARD', queue.delayed),
    redis.call('ZCARD', queue.claimed), redis.call('ZCARD', queue.dead), string.format('%.0f', seconds_old(queue)),
    queue.paused }
  for _, name in ipairs({ 'enqueued', 'acked', 'forwarded', 'purged', 'expired', 'cancelled', 'dropped' }) do
    reply[#reply + 1] = string.format('%.0f', queue[name])
  end
  return reply
end

verbs.pause = function(queue)
  queue.paused = 1
  return 1
end

verbs.resume = function(queue)
  queue.paused = 0
  wake(queue)
  return 1
end

verbs.cancel = function(queue, take)
  local message = find(queue, take())
  if not message then return 'unknown' end
  if message.state == READY or message.state == DELAYED then
    lift(queue, message)
    end_cancelled(queue, message)
    return 'cancelled'
  end
  if message.state ~= CLAIMED then return 'finished' end
  message.cancel = true
  write(queue, message)
  queue.hints[#queue.hints + 1] = 'cancel:' .. message.id
  return 'cancelling'
end

verbs.outcome = function(queue, take)
  local id, watch = take(), take() == '1'
  local message = find(queue, id)
  if not message then return { 'unknown' } end
  if message.state == DONE then return message.result and { 'done', message.result } or { 'done' } end
  if message.state == DEAD or message.state == ELSEWHERE then return { 'dead', message.reason or '' } end
  if message.state == CANCELLED then return { 'cancelled' } end
  if message.state == EXPIRED then return { 'expired' } end
  if watch and not message.watched then
    message.watched = true
    write(queue, message)
  end
  return { 'pending' }
end

-- A page of a sorted set after a score and a member, one more than asked for.
local function page(key, after, limit, floor)
  local found = {}
  local from = after == '' and '-inf' or string.match(after, '^([^:]*):')
  local last = after == '' and '' or string.match(after, '^[^:]*:(.*)$')
  local offset = 0
  while #found <= limit do
    local some = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', offset, limit + 1)
    if #some == 0 then break end
    for index = 1, #some, 2 do
      local passed = after ~= '' and some[index + 1] == from and some[index] <= last
      if not passed and #found <= limit then found[#found + 1] = { some[index], some[index + 1] } end
    end
    offset = offset + #some / 2
  end
  return found
end

local function shown(queue, message, extra)
  local errors = message.errors and cjson.encode(message.errors) or '[]'
  return { message.id, redis.call('HGET', queue.payloads, message.id) or '', message.attempt, message.deliveries,
    message.priority, message.key or '', message.headers or '', string.format('%.0f', message.enqueuedAt), extra or '',
    message.consumer or '', message.progress or '', message.reason or '', tostring(message.attempts or 0),
    string.format('%.0f', message.endedAt or 0), errors }
end

verbs.list = function(queue, take)
  local state, after, limit = take(), take(), tonumber(take())
  local found = page(queue[state], after, limit)
  local more = #found > limit
  if more then found[#found] = nil end
  local items = {}
  for index, each in ipairs(found) do
    local id = state == 'ready' and id_of(each[1]) or each[1]
    items[index] = shown(queue, read(queue, id), state ~= 'ready' and each[2] or '')
  end
  local last = found[#found]
  return { items, more and last and (last[2] .. ':' .. last[1]) or '' }
end

local function find_dead(queue, id)
  local message = find(queue, id)
  return message and message.state == DEAD and message or nil
end

local function take_ids(take)
  local ids = {}
  for index = 1, tonumber(take()) do ids[index] = take() end
  return ids
end

local function revive(queue, message)
  lift(queue, message)
  queue.bytes = queue.bytes + message.size
  message.attempt, message.deliveries, message.cancel, message.attempts, message.reason = 1, 0, nil, nil, nil
  message.errors, message.number, message.endedAt, message.progress = nil, nil, nil, nil
  message.expiresAt = message.ttl and instant(now + message.ttl) or NEVER
  arrive(queue, message)
  if message.expiresAt ~= NEVER then expect(queue, message.expiresAt) end
end

verbs.requeueDead = function(queue, take)
  local dead, order, bytes, length, answers = {}, take_ids(take), 0, 0, {}
  for index, id in ipairs(order) do
    local message = not dead[id] and find_dead(queue, id)
    answers[index] = message and 1 or 0
    if message then
      dead[id] = message
      bytes, length = bytes + message.size, length + 1
    end
  end
  local refused = make_room(queue, length, bytes)
  if refused then return refused end
  for index, id in ipairs(order) do if answers[index] == 1 then revive(queue, dead[id]) end end
  return answers
end

local function purge(queue, message)
  lift(queue, message)
  queue.purged = queue.purged + 1
  forget(queue, message)
end

verbs.purgeDead = function(queue, take)
  local answers = {}
  for index, id in ipairs(take_ids(take)) do
    local message = find_dead(queue, id)
    if message then purge(queue, message) end
    answers[index] = message and 1 or 0
  end
  return answers
end

verbs.purge = function(queue, take)
  local limit, purged = tonumber(take()), 0
  for _, state in ipairs(take_ids(take)) do
    for _, found in ipairs(redis.call('ZRANGE', queue[state], 0, limit - purged - 1)) do
      purge(queue, read(queue, state == 'ready' and id_of(found) or found))
      purged = purged + 1
    end
    if purged >= limit then break end
  end
  return purged
end
