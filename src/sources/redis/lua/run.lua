-- Carries out the steps of one turn, in order. A step that was carried out before gets its first answer.

local cursor = 0
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

-- The answers that one caller may still ask for again. They go when it has been silent for two of the longest leases;
-- that they were given is kept, so that a repeat that comes later still is refused and not run.
local function answers_of(session)
  return P .. ':a:' .. session
end

local function raise_floor(session, floor)
  local known = tonumber(redis.call('HGET', P .. ':s', session) or floor)
  for seq = known, floor - 1 do redis.call('HDEL', answers_of(session), string.format('%.0f', seq)) end
  local lowest = math.max(known, floor)
  redis.call('HSET', P .. ':s', session, string.format('%.0f', lowest))
  return lowest
end

local function once(queue, verb, session, seq, floor, skip)
  if seq < raise_floor(session, floor) then
    skip()
    return { '!', 'expired' }
  end
  local key, field = answers_of(session), string.format('%.0f', seq)
  local kept = redis.call('HGET', key, field)
  if kept then
    skip()
    local answer = cmsgpack.unpack(kept)
    return recalled[verb] and recalled[verb](queue, answer) or answer
  end
  local reply = verbs[verb](queue, take)
  redis.call('HSET', key, field, cmsgpack.pack(remembered[verb] and remembered[verb](reply) or reply))
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(60000, 2 * queue.lease)))
  return reply
end

local replies = {}
local queue, moved
for index = 1, tonumber(take()) do
  local verb, session, seq, floor, length = take(), take(), tonumber(take()), tonumber(take()), tonumber(take())
  local skip = function() cursor = cursor + length end
  if not queue then
    queue, moved = enter(P, verb == 'sweep' and math.min(STEP, tonumber(ARGV[cursor + 1])) or STEP)
  end
  queue.moved, moved = moved, 0
  if session == '' then replies[index] = verbs[verb](queue, take)
  else replies[index] = once(queue, verb, session, seq, floor, skip) end
end
for _, each in pairs(opened) do trim(each) end
save()
return replies
