-- The turn that nearly all are: one caller enqueues messages with nothing to them but a priority, into a queue that is
-- not bounded. See plain-consume.lua on why it is carried out apart.

-- The steps of the turn, or nil if it is any other. A plain message is three arguments, any other more.
local function asked()
  local steps, session, at, count = tonumber(ARGV[1]), ARGV[3], 2, 0
  if session == '' then return nil end
  local turn = { session = session, floor = 0, seqs = {}, firsts = {}, counts = {} }
  for step = 1, steps do
    local size = tonumber(ARGV[at + 5])
    if ARGV[at + 1] ~= session or tonumber(ARGV[at + 4]) ~= 1 + 3 * size then return nil end
    turn.seqs[step], turn.floor = tonumber(ARGV[at + 2]), math.max(turn.floor, tonumber(ARGV[at + 3]))
    if step > 1 and turn.seqs[step] <= turn.seqs[step - 1] then return nil end
    turn.firsts[step], turn.counts[step] = at + 6, size
    at, count = at + 6 + 3 * size, count + size
    if count > MOST then return nil end
  end
  return turn
end

local function ids_in(turn)
  local ids = {}
  for step, first in ipairs(turn.firsts) do
    for index = first, first + 3 * turn.counts[step] - 1, 3 do ids[#ids + 1] = ARGV[index] end
  end
  return ids
end

-- Whether the queue is as usual, and the turn is asked for the first time.
local function begin(turn, queue)
  if not queue or queue.rules.stepMs or queue.rules.maxLength or queue.rules.maxBytes then return false end
  turn.answers = kept_answers(turn.session, turn.floor, turn.seqs)
  return turn.answers
end

-- Plans the messages of a step, and answers for each whether it is new, or how many there are if all are. False if one
-- is not plain.
local function plan(queue, first, count, held, seen, plans)
  local statuses, fresh, maxPayloadBytes = {}, 0, queue.rules.maxPayloadBytes
  local payloads, records, places, args = plans.payloads, plans.records, plans.places, ARGV
  for index = 1, count do
    local at = first + 3 * (index - 1)
    local id, priority, payload, packed = args[at], args[at + 1], args[at + 2], held[plans.looked + index]
    -- An outcome may be so old that the id is free again.
    local isHeld = packed and #packed >= UP_TO_ARRIVAL_BYTES and string.byte(packed) < DONE
    if packed and not isHeld or #payload > maxPayloadBytes then return false end
    local isFresh = not packed and not seen[id]
    statuses[index] = isFresh and 1 or 0
    if isFresh then
      seen[id], fresh = true, fresh + 1
      local set, arrival = #payloads, plans.time .. string.format('%08x', queue.arrivals + fresh)
      payloads[set + 1], payloads[set + 2] = id, payload
      records[set + 1], records[set + 2] = id, struct.pack(WAITING, READY, 0, 0, #payload, 0, 0, 0, 0, NEVER, arrival,
        priority, 1, queue.now, 0, 0)
      places[set + 1], places[set + 2] = priority, arrival .. id
      plans.bytes = plans.bytes + #payload
    end
  end
  queue.arrivals, plans.looked = queue.arrivals + fresh, plans.looked + count
  return fresh == count and count or statuses
end

local function write(queue, plans)
  local wasEmpty = redis.call('EXISTS', P .. ':r') == 0
  -- Payloads first: where memory has run out the server refuses a call at its first write.
  redis.call('HSET', P .. ':p', unpack(plans.payloads))
  redis.call('HSET', P .. ':m', unpack(plans.records))
  redis.call('ZADD', P .. ':r', unpack(plans.places))
  queue.bytes, queue.readyBytes = queue.bytes + plans.bytes, queue.readyBytes + plans.bytes
  save_plainly(queue, 'enqueued', #plans.payloads / 2)
  if wasEmpty then redis.call('PUBLISH', P .. ':h', 'ready') end
end

local function carry_out(turn)
  local queue = opened_plainly('enqueued')
  if not begin(turn, queue) then return nil end
  local ids = ids_in(turn)
  if queue.arrivals + #ids >= ARRIVALS then return nil end
  queue.latest = math.max(queue.latest, queue.now)
  local held, seen, replies = ids[1] and redis.call('HMGET', P .. ':m', unpack(ids)) or {}, {}, {}
  local plans = { payloads = {}, records = {}, places = {}, bytes = 0, looked = 0,
    time = string.format('%011x', queue.latest) }
  for step, first in ipairs(turn.firsts) do
    replies[step] = plan(queue, first, turn.counts[step], held, seen, plans)
    if not replies[step] then return nil end
  end
  -- Where nothing is added, nothing is refused for want of memory: the first write is one that removes.
  if plans.payloads[1] then write(queue, plans) else redis.call('HDEL', P .. ':q', '') end
  for step, reply in ipairs(replies) do keep_answer(turn.answers, turn.seqs[step], reply) end
  save_answers(turn.session, turn.answers, queue.lease)
  return replies
end

local turn = asked()
local replies = turn and carry_out(turn)
if replies then return replies end
