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

local function carry_out(turn)
  local now = now_of_server()
  local stored = redis.call('HMGET', P .. ':q', 'format', 'rules', 'state', 'enqueued')
  if tonumber(stored[1] or 0) ~= FORMAT or not stored[3] then return nil end
  local bytes, readyBytes, arrivals, latest, fences, deaths, paused, longest, ranking, audited, tidyAt, nextAt, endedSince =
    struct.unpack(STATE, stored[3])
  local rules, args = rules_in(stored[2]), ARGV
  if rules.stepMs or rules.maxLength or rules.maxBytes then return nil end
  local answers, floor = kept_answers(turn.session, turn.floor, turn.seqs)
  if not answers then return nil end
  local ids = ids_in(turn)
  if arrivals + #ids >= ARRIVALS then return nil end
  latest = math.max(latest, now)

  local held, seen, count = ids[1] and redis.call('HMGET', P .. ':m', unpack(ids)) or {}, {}, 0
  local time, payloads, records, places, set = string.format('%011x', latest), {}, {}, {}, 0
  for step, first in ipairs(turn.firsts) do
    local fresh, statuses, following = 0, {}, first + 3 * turn.counts[step] - 1
    for at = first, following, 3 do
      local id, payload = args[at], args[at + 2]
      count = count + 1
      -- An outcome may be so old that the id is free again.
      if held[count] and string.byte(held[count]) >= DONE or #payload > rules.maxPayloadBytes then return nil end
      local isFresh = not held[count] and not seen[id]
      statuses[#statuses + 1] = isFresh and 1 or 0
      if isFresh then
        local size, priority = #payload, args[at + 1]
        seen[id], fresh, arrivals = true, fresh + 1, arrivals + 1
        local arrival = time .. string.format('%08x', arrivals)
        payloads[set + 1], payloads[set + 2] = id, payload
        records[set + 1], records[set + 2] = id, struct.pack(WAITING, READY, 0, 0, size, 0, 0, 0, 0, NEVER, arrival,
          priority, 1, now, 0, 0)
        places[set + 1], places[set + 2] = priority, arrival .. id
        set, bytes, readyBytes = set + 2, bytes + size, readyBytes + size
      end
    end
    turn.counts[step] = fresh == #statuses and fresh or statuses
  end

  if set > 0 then
    local wasEmpty = redis.call('EXISTS', P .. ':r') == 0
    -- Payloads first: see `save`.
    redis.call('HSET', P .. ':p', unpack(payloads))
    redis.call('HSET', P .. ':m', unpack(records))
    redis.call('ZADD', P .. ':r', unpack(places))
    redis.call('HSET', P .. ':q', 'enqueued', tonumber(stored[4] or 0) + set / 2, 'state',
      struct.pack(STATE, bytes, readyBytes, arrivals, latest, fences, deaths, paused, longest, ranking, audited, tidyAt,
        nextAt, endedSince))
    if wasEmpty then redis.call('PUBLISH', P .. ':h', 'ready') end
  end
  for step, answer in ipairs(turn.counts) do keep_answer(answers, turn.seqs[step], answer) end
  save_answers(turn.session, floor, answers, longest)
  return turn.counts
end

local turn = asked()
local replies = turn and carry_out(turn)
if replies then return replies end
