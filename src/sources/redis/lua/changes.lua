-- Changes to the keys of a queue, gathered: a call reads and writes each key a few times, however many messages it moves.

-- The most values of one command.
local CHUNK = 2000

local function in_chunks(command, key, values)
  for from = 1, #values, CHUNK do
    redis.call(command, key, unpack(values, from, math.min(#values, from + CHUNK - 1)))
  end
end

local function put(set, member, score)
  set.changes[member] = score
  set.changed = true
  if set.first and score < set.first then set.first = score end
end

local function take_out(set, member)
  set.changes[member] = false
  set.changed = true
  set.first = nil
end

local function flush(set)
  if not set.changed then return end
  local gone, placed = {}, {}
  for member, score in pairs(set.changes) do
    if score then
      placed[#placed + 1] = whole(score)
      placed[#placed + 1] = member
    else gone[#gone + 1] = member end
  end
  set.changes, set.changed = {}, false
  in_chunks('ZREM', set.key, gone)
  in_chunks('ZADD', set.key, placed)
end

-- The lowest score, or infinity.
local function first(set)
  if not set.first then
    flush(set)
    local found = redis.call('ZRANGE', set.key, 0, 0, 'WITHSCORES')
    set.first = found[2] and tonumber(found[2]) or math.huge
  end
  return set.first
end

local function length(set)
  flush(set)
  return redis.call('ZCARD', set.key)
end

-- The members from one rank to another, in order.
local function range(set, from, to)
  flush(set)
  return redis.call('ZRANGE', set.key, from, to)
end

local function up_to(set, score, limit)
  flush(set)
  return redis.call('ZRANGEBYSCORE', set.key, '-inf', whole(score), 'LIMIT', 0, limit)
end

-- Reads the scores of many members at once, for the `score` of each that follows.
local function look_up_scores(set, members)
  if #members == 0 then return end
  flush(set)
  set.scores = set.scores or {}
  for from = 1, #members, CHUNK do
    local last = math.min(#members, from + CHUNK - 1)
    for index, score in ipairs(redis.call('ZMSCORE', set.key, unpack(members, from, last))) do
      set.scores[members[from + index - 1]] = tonumber(score or NEVER)
    end
  end
end

-- The score of a member that was looked up, as this call leaves it.
local function score(set, member)
  return set.changes[member] or set.scores[member]
end

-- A message is an array without gaps, which packs to half of what names and values would.
local FIELDS = {
  'state', 'priority', 'size', 'enqueuedAt', 'ttl', 'bury', 'expiresAt', 'attempt', 'deliveries', 'fence', 'taken',
  'cancel', 'arrivedAt', 'arrival', 'number', 'endedAt', 'attempts', 'consumer', 'key', 'headers', 'errors', 'reason',
  'result', 'progress', 'watched',
}

local function unpacked(id, packed)
  local values = cmsgpack.unpack(packed)
  local message = { id = id }
  for index, name in ipairs(FIELDS) do
    if values[index] then message[name] = values[index] end
  end
  return message
end

local function pack(message)
  local values = {}
  for index, name in ipairs(FIELDS) do values[index] = message[name] or false end
  return cmsgpack.pack(values)
end

-- Reads many messages at once, for the `read` of each that follows.
local function look_up(queue, ids)
  local known, wanted = queue.messages.known, {}
  for _, id in ipairs(ids) do if known[id] == nil then wanted[#wanted + 1] = id end end
  for from = 1, #wanted, CHUNK do
    local last = math.min(#wanted, from + CHUNK - 1)
    local found = redis.call('HMGET', queue.messages.key, unpack(wanted, from, last))
    for index = from, last do
      local id, packed = wanted[index], found[index - from + 1]
      known[id] = packed and unpacked(id, packed) or false
    end
  end
end

local function read(queue, id)
  if queue.messages.known[id] == nil then look_up(queue, { id }) end
  return queue.messages.known[id] or nil
end

local function write(queue, message)
  queue.messages.known[message.id] = message
  queue.messages.changed[message.id] = true
end

-- The payload is kept apart, so that moves do not write it again.
local function put_payload(queue, id, bytes)
  queue.payloads.changes[id] = bytes
end

local function drop_payload(queue, id)
  queue.payloads.changes[id] = false
end

local function remove(queue, id)
  queue.messages.known[id] = false
  queue.messages.changed[id] = true
  drop_payload(queue, id)
end

local function save_fields(key, changes)
  local gone, set = {}, {}
  for field, value in pairs(changes) do
    if value then
      set[#set + 1] = field
      set[#set + 1] = value
    else gone[#gone + 1] = field end
  end
  in_chunks('HSET', key, set)
  in_chunks('HDEL', key, gone)
end

local function save_payloads(queue)
  save_fields(queue.payloads.key, queue.payloads.changes)
  queue.payloads.changes = {}
end

-- The payloads of these messages, false for one that is not there.
local function payloads_of(queue, ids)
  if #ids == 0 then return {} end
  save_payloads(queue)
  local found = {}
  for from = 1, #ids, CHUNK do
    local some = redis.call('HMGET', queue.payloads.key, unpack(ids, from, math.min(#ids, from + CHUNK - 1)))
    for _, bytes in ipairs(some) do found[#found + 1] = bytes end
  end
  return found
end

local function save_messages(queue)
  local packed = {}
  for id in pairs(queue.messages.changed) do
    local message = queue.messages.known[id]
    packed[id] = message and pack(message)
  end
  save_fields(queue.messages.key, packed)
end

-- Payloads first: where memory has run out the server refuses a call at its first write, and only what adds is refused.
local function save(queue)
  save_payloads(queue)
  save_messages(queue)
  for name in pairs(SETS) do flush(queue[name]) end
  save_counters(queue)
  publish(queue)
end
