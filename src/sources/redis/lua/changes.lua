-- Changes to the keys of a queue, gathered: a call reads and writes each key a few times, however many messages it
-- moves.

-- The most values of one command.
local CHUNK = 2000

local function in_chunks(command, key, values)
  for from = 1, #values, CHUNK do
    redis.call(command, key, unpack(values, from, math.min(#values, from + CHUNK - 1)))
  end
end

-- The values of many fields of a hash, false for one that is not there.
local function fields(key, names)
  local found = {}
  for from = 1, #names, CHUNK do
    for _, value in ipairs(redis.call('HMGET', key, unpack(names, from, math.min(#names, from + CHUNK - 1)))) do
      found[#found + 1] = value
    end
  end
  return found
end

-- What leaves is written before what is placed.
local function flush(set)
  if set.gone then in_chunks('ZREM', set.key, set.gone) end
  if set.placed then in_chunks('ZADD', set.key, set.placed) end
  set.gone, set.placed = nil, nil
end

local function put(set, member, score)
  local placed = set.placed or {}
  set.placed = placed
  placed[#placed + 1] = score
  placed[#placed + 1] = member
end

local function take_out(set, member)
  if set.placed then flush(set) end
  local gone = set.gone or {}
  set.gone = gone
  gone[#gone + 1] = member
end

-- The lowest score, or one above all.
local function first(set)
  flush(set)
  local found = redis.call('ZRANGE', set.key, 0, 0, 'WITHSCORES')
  return found[2] and tonumber(found[2]) or LATEST
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

-- A record is what moves of a message; the payload is kept apart, so that a move does not write it again. An outcome
-- has nothing that lasts. What few messages have is packed behind: ttl, errors, reason, attempts, number, progress,
-- result.
local TAKEN, CANCEL, WATCHED, BURY = 1, 2, 4, 8

local function unpack_lasting(message, packed, from)
  local expiresAt, arrival, priority, attempt, enqueuedAt, key, headers, rest = struct.unpack(LASTING, packed, from)
  message.expiresAt, message.arrival, message.priority, message.attempt = expiresAt, arrival, priority, attempt
  message.enqueuedAt, message.key, message.headers = enqueuedAt, key, headers
  return rest
end

local function unpacked(id, packed)
  local state, flags, again, size, deliveries, fence, at, consumer, rest = struct.unpack(MOVING, packed)
  local message = { id = id, state = state, flags = flags, again = again, size = size, deliveries = deliveries,
    fence = fence, at = at, consumer = consumer, expiresAt = NEVER }
  if state < DONE then rest = unpack_lasting(message, packed, rest) end
  message.rest = rest <= #packed and string.sub(packed, rest) or ''
  return message
end

-- False for what is no record: somebody has written it by hand.
local function readable(id, packed)
  local isRecord, message = pcall(unpacked, id, packed)
  return isRecord and message
end

local function pack(message)
  local consumer, packed = message.consumer, nil
  packed = struct.pack(MOVING, message.state, message.flags, message.again, message.size, message.deliveries,
    message.fence, message.at, #consumer, consumer)
  if message.state < DONE then
    local key, headers = message.key, message.headers
    packed = packed .. struct.pack(LASTING, message.expiresAt, message.arrival, message.priority, message.attempt,
      message.enqueuedAt, #key, key, #headers, headers)
  end
  if message.extra then return packed .. cmsgpack.pack(message.extra) end
  return message.rest == '' and packed or packed .. message.rest
end

-- What few messages have, to be read and changed.
local function extra(message)
  if not message.extra then message.extra = message.rest == '' and {} or cmsgpack.unpack(message.rest) end
  return message.extra
end

local function has(message, flag)
  return message.flags > 0 and bit.band(message.flags, flag) > 0
end

local function set_flag(message, flag, on)
  message.flags = on and bit.bor(message.flags, flag) or bit.band(message.flags, bit.bnot(flag))
end

-- Reads many messages at once, for the `read` of each that follows.
local function look_up(queue, ids)
  local known = queue.known
  for index, packed in ipairs(fields(queue.messages, ids)) do
    local id = ids[index]
    if known[id] == nil then known[id] = packed and readable(id, packed) or false end
  end
end

local function read(queue, id)
  if queue.known[id] == nil then look_up(queue, { id }) end
  return queue.known[id] or nil
end

local function write(queue, message)
  if message.changed then return end
  message.changed = true
  queue.known[message.id] = message
  queue.changed[#queue.changed + 1] = message
end

local function drop_payload(queue, id)
  queue.oldPayloads[#queue.oldPayloads + 1] = id
end

local function remove(queue, message)
  message.removed = true
  write(queue, message)
  queue.known[message.id] = false
end

local function save_payloads(queue)
  in_chunks('HSET', queue.payloads, queue.newPayloads)
  in_chunks('HDEL', queue.payloads, queue.oldPayloads)
  queue.newPayloads, queue.oldPayloads = {}, {}
end

local function put_payload(queue, id, bytes)
  if queue.oldPayloads[1] then save_payloads(queue) end
  queue.newPayloads[#queue.newPayloads + 1] = id
  queue.newPayloads[#queue.newPayloads + 1] = bytes
end

-- The payloads of these messages, false for one that is not there.
local function payloads_of(queue, ids)
  save_payloads(queue)
  return fields(queue.payloads, ids)
end

local function save_messages(queue)
  local set, gone, known = {}, {}, queue.known
  for _, message in ipairs(queue.changed) do
    if not message.removed then
      set[#set + 1] = message.id
      set[#set + 1] = pack(message)
    elseif not known[message.id] then gone[#gone + 1] = message.id end
  end
  in_chunks('HSET', queue.messages, set)
  in_chunks('HDEL', queue.messages, gone)
end

-- Payloads first: where memory has run out the server refuses a call at its first write, and only what adds is refused.
local function save(queue)
  save_payloads(queue)
  save_messages(queue)
  flush(queue.ready)
  flush(queue.claimed)
  flush(queue.delayed)
  flush(queue.expiring)
  flush(queue.oldest)
  flush(queue.dead)
  queues.save_counters(queue)
  for _, text in ipairs(queue.hints) do redis.call('PUBLISH', queue.prefix .. ':h', text) end
end

return {
  in_chunks = in_chunks, fields = fields, flush = flush, put = put, take_out = take_out, first = first, length = length,
  range = range, readable = readable, pack = pack, extra = extra, has = has, set_flag = set_flag, look_up = look_up,
  read = read, write = write, drop_payload = drop_payload, remove = remove, put_payload = put_payload,
  payloads_of = payloads_of, save = save, TAKEN = TAKEN, CANCEL = CANCEL, WATCHED = WATCHED, BURY = BURY,
}
