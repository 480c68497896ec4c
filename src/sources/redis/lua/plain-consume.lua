-- The turn that nearly all are: acks with nothing to them, a claim, or both, and nothing else to see to. It is carried
-- out in one piece, without the modules that all others need: to make their functions and tables would be most of its
-- cost.
--
-- Everything is read and checked first. Where anything is not as usual, nothing is written and the modules do it all,
-- with the same outcome where both can.

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
  return turn.max <= MOST and (not turn.seqs[2] or turn.seqs[2] > turn.seqs[1]) and turn or nil
end

-- Whether the queue is as usual, with nothing due, and the turn is asked for the first time.
local function begin(turn, queue)
  if not queue or queue.paused ~= 0 or queue.ranking ~= 0 or queue.nextAt <= queue.now or turn.lease > queue.lease then
    return false
  end
  if turn.acks > 0 and queue.endedSince + queue.rules.outcomesMs <= queue.now then return false end
  turn.answers = kept_answers(turn.session, turn.floor, turn.seqs)
  return turn.answers
end

-- The ids of what is acked, false if one comes twice.
local function acked_ids(turn)
  local ids, seen = {}, {}
  for index = 1, turn.acks do
    local id = ARGV[6 + 3 * index]
    if seen[id] then return false end
    ids[index], seen[id] = id, true
  end
  return ids
end

-- Records of what is acked, and behind them of what is ready: its members and their ids.
local function look_up(turn, ids)
  local members, readyIds = turn.max > 0 and redis.call('ZRANGE', P .. ':r', 0, turn.max - 1) or {}, {}
  for index, member in ipairs(members) do
    local id = string.sub(member, 20)
    ids[turn.acks + index], readyIds[index] = id, id
  end
  return ids[1] and redis.call('HMGET', P .. ':m', unpack(ids)) or {}, members, readyIds
end

-- What becomes of the claims that are acked, false if one of them is not plain.
local function plan_acks(turn, queue, ids, found, records)
  local ended, left, results, now = {}, {}, {}, queue.now
  for index = 1, turn.acks do
    local packed, id = found[index], ids[index]
    results[index] = 'stale'
    if packed then
      if #packed < MOVED_BYTES then return false end
      local state, flags, again, size, _, fence, till, labelled = struct.unpack(MOVED, packed)
      if state == CLAIMED and till > now and fence == tonumber(ARGV[7 + 3 * index]) then
        if flags ~= 0 or #packed < UP_TO_ARRIVAL_BYTES + labelled then return false end
        records[#records + 1] = id
        records[#records + 1] = struct.pack(MOVING, DONE, 0, again, size, 0, fence, now, 0, '')
        queue.bytes, results[index] = queue.bytes - size, 'acked'
        ended[#ended + 1] = id
        left[#left + 1] = string.sub(packed, ARRIVAL_AT + labelled, UP_TO_ARRIVAL_BYTES + labelled) .. id
      end
    end
  end
  return ended, left, results
end

-- What is claimed, false if one of the messages is not plain.
local function plan_claims(turn, queue, found, members, ids, records)
  local payloads = members[1] and redis.call('HMGET', P .. ':p', unpack(ids)) or {}
  local claims, timed, consumer, leaseEnd = {}, {}, turn.consumer, turn.leaseEnd
  local fences, taken = queue.fences, 0
  for index, member in ipairs(members) do
    local packed, id, payload = found[turn.acks + index], ids[index], payloads[index]
    if not packed or not payload or #packed < UP_TO_ARRIVAL_BYTES then return false end
    local state, flags, again, size, deliveries, _, _, labelled, expiresAt, arrival =
      struct.unpack(UP_TO_ARRIVAL, packed)
    if state ~= READY or flags ~= 0 or labelled ~= 0 or arrival .. id ~= member then return false end
    if expiresAt ~= NEVER then
      if expiresAt <= queue.now then return false end
      timed[#timed + 1] = id
    end
    local record = struct.pack(MOVING, CLAIMED, 0, again, size, deliveries + 1, fences + index, leaseEnd, #consumer,
      consumer) .. string.sub(packed, MOVED_BYTES + 1)
    records[#records + 1], taken = id, taken + size
    records[#records + 1] = record
    claims[3 * index - 2], claims[3 * index - 1], claims[3 * index] = id, record, payload
  end
  queue.fences, queue.readyBytes = fences + #members, queue.readyBytes - taken
  return claims, timed
end

local function write_claims(turn, queue, members, timed)
  local placed, score = {}, string.format('%.0f', turn.leaseEnd)
  for index, member in ipairs(members) do placed[2 * index - 1], placed[2 * index] = score, member end
  redis.call('ZREMRANGEBYRANK', P .. ':r', 0, #members - 1)
  if queue.rules.stepMs then redis.call('ZREM', P .. ':o', unpack(members)) end
  if timed[1] then redis.call('ZREM', P .. ':t', unpack(timed)) end
  redis.call('ZADD', P .. ':c', unpack(placed))
  if turn.leaseEnd < queue.nextAt then
    queue.nextAt = turn.leaseEnd
    redis.call('PUBLISH', P .. ':h', string.format('due:%.0f', turn.lease))
  end
end

local function carry_out(turn)
  local queue = opened_plainly('acked')
  local ids = acked_ids(turn)
  if not ids or not begin(turn, queue) then return nil end
  local found, members, readyIds = look_up(turn, ids)
  if turn.max > 0 and not members[1] and queue.tidyAt <= queue.now then return nil end
  turn.leaseEnd = math.min(math.ceil(queue.now + turn.lease), LATEST)
  local records, firstFence = {}, queue.fences + 1
  local ended, left, results = plan_acks(turn, queue, ids, found, records)
  local claims, timed = plan_claims(turn, queue, found, members, readyIds, records)
  if not ended or not claims then return nil end

  -- What removes comes first: a server without memory refuses a call whose first write adds something.
  if ended[1] then
    redis.call('HDEL', P .. ':p', unpack(ended))
    redis.call('ZREM', P .. ':c', unpack(left))
  end
  if members[1] then write_claims(turn, queue, members, timed) end
  if records[1] then
    redis.call('HSET', P .. ':m', unpack(records))
    save_plainly(queue, 'acked', #ended)
  elseif turn.acks > 0 then redis.call('HDEL', P .. ':q', '') end
  -- Among those that are too many may be some that have just ended.
  if ended[1] then trim(P, redis.call('RPUSH', P .. ':e', unpack(ended)), queue.rules.maxOutcomes) end

  -- Of acks it is told how many, if all were live.
  local replies = {}
  if turn.acks > 0 then
    replies[1] = #ended == turn.acks and turn.acks or results
    keep_answer(turn.answers, turn.seqs[1], replies[1])
  end
  if turn.claims then
    replies[#replies + 1] = { 0, queue.nextAt == LATEST and -1 or queue.nextAt - queue.now, claims }
    if members[1] then keep_answer(turn.answers, turn.seqs[#replies], { firstFence, unpack(readyIds) }) end
  end
  if turn.acks > 0 or members[1] then save_answers(turn.session, turn.answers, queue.lease) end
  return replies
end

local turn = asked()
local replies = turn and carry_out(turn)
if replies then return replies end
