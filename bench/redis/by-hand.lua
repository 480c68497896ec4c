-- A queue with leases in as few calls as there can be: ids in a list, payloads in a hash, claims in a sorted set by the
-- end of their leases. A claim is `fence:id`, so that one ZREM compares the fence and ends it.
-- KEYS: ready, payloads, claims, fences. ARGV: verb and what it takes.
local ready, payloads, claims, fences = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function id_of(claim)
  return string.sub(claim, string.find(claim, ':', 1, true) + 1)
end

-- What comes back goes before what is ready.
local function give_back(claim)
  if redis.call('ZREM', claims, claim) == 1 then redis.call('LPUSH', ready, id_of(claim)) end
end

-- ARGV: payloads.
local function enqueue()
  local count = #ARGV - 1
  local last = redis.call('INCRBY', fences, count)
  local pairs, ids = {}, {}
  for index = 1, count do
    local id = string.format('%.0f', last - count + index)
    ids[index], pairs[2 * index - 1], pairs[2 * index] = id, id, ARGV[index + 1]
  end
  redis.call('HSET', payloads, unpack(pairs))
  redis.call('RPUSH', ready, unpack(ids))
  return count
end

-- ARGV: claims from `first` on. All at once if all are live, which they are unless a handler was slow.
local function ack(first)
  local count = #ARGV - first + 1
  if count == 0 then return end
  local ids, ended = {}, {}
  for index = first, #ARGV do
    ids[#ids + 1], ended[#ended + 1] = id_of(ARGV[index]), ARGV[index]
  end
  if count == 1 then
    if redis.call('ZREM', claims, ended[1]) == 1 then redis.call('HDEL', payloads, ids[1]) end
    return
  end
  for index, live in ipairs(redis.call('ZMSCORE', claims, unpack(ended))) do
    if not live then ids[index] = '' end
  end
  redis.call('ZREM', claims, unpack(ended))
  redis.call('HDEL', payloads, unpack(ids))
end

-- ARGV: how many, the lease, claims to ack before.
local function claim()
  local size, lease, at = tonumber(ARGV[2]), tonumber(ARGV[3]), now()
  ack(4)
  for _, lapsed in ipairs(redis.call('ZRANGEBYSCORE', claims, '-inf', at, 'LIMIT', 0, 100)) do give_back(lapsed) end
  if size == 0 then return {} end
  local ids = redis.call('LPOP', ready, size)
  if not ids then return {} end
  local bodies = redis.call('HMGET', payloads, unpack(ids))
  local fence = redis.call('INCRBY', fences, #ids)
  local added, reply = {}, {}
  for index, id in ipairs(ids) do
    local granted = string.format('%.0f', fence - index) .. ':' .. id
    added[2 * index - 1], added[2 * index] = at + lease, granted
    reply[2 * index - 1], reply[2 * index] = granted, bodies[index]
  end
  redis.call('ZADD', claims, unpack(added))
  return reply
end

if ARGV[1] == 'enqueue' then return enqueue() end
return claim()
