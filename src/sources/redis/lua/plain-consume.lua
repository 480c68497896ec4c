-- The turn that nearly all are: acks with nothing to them, a claim, or both, and nothing else to see to. It is carried
-- out in one piece, without the modules that all others need: to make their functions and tables would be most of its
-- cost.
--
-- Everything is read and checked first. Where anything is not as usual it answers nil, having written nothing, and the
-- modules do it all, with the same outcome where both can.

-- What is asked, or nil if it is anything else. An ack is three arguments, any other settlement more.
local function asked()
  local steps, session, at = tonumber(ARGV[1]), ARGV[3], 2
  if steps > 2 or session == '' then return nil end
  local turn = { session = session, acks = 0, max = 0, lease = 0, seqs = {}, floor = tonumber(ARGV[5]) }
  if ARGV[2] == 'settle' then
    turn.acks, turn.seqs[1] = tonumber(ARGV[7]), tonumber(ARGV[4])
    if turn.acks == 0 or turn.acks > MOST or tonumber(ARGV[6]) ~= 1 + 3 * turn.acks then return nil end
    if steps == 1 then return turn end
    at = 8 + 3 * turn.acks
  elseif steps == 2 then return nil end
  if ARGV[at] ~= 'claim' or ARGV[at + 1] ~= session or ARGV[at + 7] == '1' then return nil end
  turn.claims, turn.seqs[#turn.seqs + 1], turn.floor = true, tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  turn.max, turn.lease, turn.consumer = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]), ARGV[at + 8]
  return turn.max <= MOST and turn or nil
end

-- Forgets outcomes that are too many.
local function trim(excess)
  local ids, gone = redis.call('LPOP', P .. ':e', excess), {}
  for index, packed in ipairs(redis.call('HMGET', P .. ':m', unpack(ids))) do
    local state, again = string.byte(packed or '', 1), string.byte(packed or '', 3)
    if again == 0 and state >= DONE then gone[#gone + 1] = ids[index]
    elseif again and again > 0 then
      local less = string.sub(packed, 1, 2) .. string.char(again - 1) .. string.sub(packed, 4)
      redis.call('HSET', P .. ':m', ids[index], less)
    end
  end
  if gone[1] then redis.call('HDEL', P .. ':m', unpack(gone)) end
end

local function carry_out(turn)
  local now = now_of_server()
  local stored = redis.call('HMGET', P .. ':q', 'format', 'rules', 'state', 'acked')
  if tonumber(stored[1] or 0) ~= FORMAT or not stored[3] then return nil end
  local bytes, readyBytes, arrivals, latest, fences, deaths, paused, longest, ranking, audited, tidyAt, nextAt, endedSince =
    struct.unpack(STATE, stored[3])
  local rules = rules_in(stored[2])
  if paused ~= 0 or ranking ~= 0 or nextAt <= now or turn.lease > longest then return nil end
  if turn.acks > 0 and endedSince + rules.outcomesMs <= now then return nil end
  local answers, floor = kept_answers(turn.session, turn.floor, turn.seqs)
  if not answers then return nil end

  -- Records of what is acked, and behind them of what is ready.
  local acks, ids, seen = turn.acks, {}, {}
  for index = 1, acks do
    local id = ARGV[6 + 3 * index]
    if seen[id] then return nil end
    ids[index], seen[id] = id, true
  end
  local members = turn.max > 0 and redis.call('ZRANGE', P .. ':r', 0, turn.max - 1) or {}
  if turn.max > 0 and not members[1] and tidyAt <= now then return nil end
  local readyIds = {}
  for index, member in ipairs(members) do
    local id = string.sub(member, 20)
    ids[acks + index], readyIds[index] = id, id
  end
  local found = ids[1] and redis.call('HMGET', P .. ':m', unpack(ids)) or {}
  local records, set = {}, 0

  local ended, left, results = {}, {}, {}
  for index = 1, acks do
    local packed, id = found[index], ids[index]
    results[index] = 'stale'
    if packed then
      local state, flags, again, size, _, fence, till, labelled = struct.unpack('>BBBI4I4ddH', packed)
      if state == CLAIMED and till > now and fence == tonumber(ARGV[7 + 3 * index]) then
        if flags ~= 0 then return nil end
        records[set + 1], records[set + 2] = id, struct.pack(MOVING, DONE, 0, again, size, 0, fence, now, 0, '')
        set, bytes, results[index] = set + 2, bytes - size, 'acked'
        ended[#ended + 1] = id
        left[#left + 1] = string.sub(packed, 38 + labelled, 56 + labelled) .. id
      end
    end
  end

  local payloads = members[1] and redis.call('HMGET', P .. ':p', unpack(readyIds)) or {}
  local claims, placed, timed, leaseEnd = {}, {}, {}, math.min(math.ceil(now + turn.lease), LATEST)
  local consumer, firstFence = turn.consumer, fences + 1
  for index, member in ipairs(members) do
    local packed, id, payload = found[acks + index], readyIds[index], payloads[index]
    if not packed or not payload then return nil end
    local state, flags, again, size, deliveries, _, _, labelled, expiresAt, arrival =
      struct.unpack('>BBBI4I4ddHdc19', packed)
    if state ~= READY or flags ~= 0 or labelled ~= 0 or arrival .. id ~= member then return nil end
    if expiresAt ~= NEVER then
      if expiresAt <= now then return nil end
      timed[#timed + 1] = id
    end
    fences, readyBytes = fences + 1, readyBytes - size
    local record = struct.pack(MOVING, CLAIMED, 0, again, size, deliveries + 1, fences, leaseEnd, #consumer, consumer)
      .. string.sub(packed, 30)
    records[set + 1], records[set + 2] = id, record
    set = set + 2
    placed[2 * index - 1], placed[2 * index] = leaseEnd, member
    claims[3 * index - 2], claims[3 * index - 1], claims[3 * index] = id, record, payload
  end

  -- All is as usual. What removes comes first: see `begin`.
  if ended[1] then
    redis.call('HDEL', P .. ':p', unpack(ended))
    redis.call('ZREM', P .. ':c', unpack(left))
    local excess = redis.call('RPUSH', P .. ':e', unpack(ended)) - rules.maxOutcomes
    if excess > math.min(MOST_TOO_MANY, rules.maxOutcomes / 100) then trim(math.min(excess, TRIM_STEP)) end
  end
  if members[1] then
    redis.call('ZREMRANGEBYRANK', P .. ':r', 0, #members - 1)
    if rules.stepMs then redis.call('ZREM', P .. ':o', unpack(members)) end
    if timed[1] then redis.call('ZREM', P .. ':t', unpack(timed)) end
    redis.call('ZADD', P .. ':c', unpack(placed))
    if leaseEnd < nextAt then
      nextAt = leaseEnd
      redis.call('PUBLISH', P .. ':h', string.format('due:%.0f', turn.lease))
    end
  end
  if set > 0 then
    redis.call('HSET', P .. ':m', unpack(records))
    redis.call('HSET', P .. ':q', 'acked', tonumber(stored[4] or 0) + #ended, 'state',
      struct.pack(STATE, bytes, readyBytes, arrivals, latest, fences, deaths, paused, longest, ranking, audited, tidyAt,
        nextAt, endedSince))
  elseif acks > 0 then redis.call('HDEL', P .. ':q', '') end

  -- The answers, kept and given: of acks how many, if all were live.
  local replies = {}
  if acks > 0 then
    replies[1] = #ended == acks and acks or results
    keep_answer(answers, turn.seqs[1], replies[1])
  end
  if turn.claims then
    replies[#replies + 1] = { 0, nextAt == LATEST and -1 or nextAt - now, claims }
    if members[1] then keep_answer(answers, turn.seqs[#replies], { firstFence, unpack(readyIds) }) end
  end
  if acks > 0 or members[1] then save_answers(turn.session, floor, answers, longest) end
  return replies
end

local turn = asked()
local replies = turn and carry_out(turn)
if replies then return replies end
