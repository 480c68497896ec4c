-- What all files of a script share.

local P = string.sub(KEYS[1], 1, -3)

-- The layout of what is stored. A newer one is refused.
local FORMAT = 1
-- Numbers of a queue that change with nearly every call. `unpack_state` names them.
local STATE = '>ddddddddddddd'
-- A record begins with what changes when a message moves, and goes on with what stays.
--   state, flags, how often the id was used again, size, deliveries, fence, the instant that goes with the state (the
--   end of the lease or of the delay, or when it ended), consumer
local MOVING = '>BBBI4I4ddHc0'
--   when it expires, arrival (11 digits of time, 8 that tell apart those of one millisecond), priority, attempt,
--   when it was enqueued, key, headers
local LASTING = '>dc19HI4dI4c0I4c0'
-- Both in one, of a message that nobody has claimed yet, without key and headers.
local WAITING = '>BBBI4I4ddHdc19HI4dI4I4'
-- The fewest bytes of a record, and up to the arrival of a message that is held. What is shorter is none.
local SHORTEST, SHORTEST_HELD = 29, 56
local READY, DELAYED, CLAIMED, DEAD, DONE, ELSEWHERE, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
-- Numbers of arrivals begin anew here.
local ARRIVALS = 4294967296
-- So many messages at most in a turn that is carried out in one piece: their values fit in one command.
local MOST = 1000
local NEVER, LATEST = -1, 9007199254740991
-- So many outcomes more than are wanted are no matter; so many are forgotten at once.
local MOST_TOO_MANY, TRIM_STEP = 50, 1000

-- The rules of a queue whose settings nobody has named. `false` is no bound.
local DEFAULT_RULES = {
  maxDeliveries = 5, stepMs = false, cap = false, maxLength = false, maxBytes = false, maxPayloadBytes = 1048576,
  whenFull = 'reject', outcomesMs = 3600000, maxOutcomes = 10000,
}

local function rules_in(packed)
  return packed and cmsgpack.unpack(packed) or DEFAULT_RULES
end

local NO_STATE = string.rep('\0', struct.size(STATE))

local function unpack_state(queue, packed)
  queue.bytes, queue.readyBytes, queue.arrivals, queue.latest, queue.fences, queue.deaths, queue.paused, queue.lease,
    queue.ranking, queue.audited, queue.tidyAt, queue.nextAt, queue.endedSince =
    struct.unpack(STATE, packed or NO_STATE)
end

local function pack_state(queue)
  return struct.pack(STATE, queue.bytes, queue.readyBytes, queue.arrivals, queue.latest, queue.fences, queue.deaths,
    queue.paused, queue.lease, queue.ranking, queue.audited, queue.tidyAt, queue.nextAt, queue.endedSince)
end

-- An answer that may be asked for again: the number of the request, and the answer. Before all answers of a caller
-- come the number below which none is given again, the highest number that has one, and the number from which on they
-- are stored.
local ANSWERS, ANSWER, FIRST_ANSWER = '>ddd', '>dI4c0', 25
-- Where there are more bytes of them, new ones are added behind, and the old ones are left alone until so many are done
-- with: a call should not cost more when one request is under way for long, and many pass it.
local MANY_BYTES, FEW = 4096, 100
-- How long they are kept at least after their caller was last heard of. More would not be taken as an expiry.
local KEPT_MS, MOST_KEPT_MS = 7200000, 2251799813685248

local function kept_for(lease)
  return string.format('%.0f', math.min(math.max(KEPT_MS, 4 * lease), MOST_KEPT_MS))
end

-- Which answers are kept: from the floor on, which never sinks, up to the highest. Nil if one of these requests has
-- been answered before, perhaps, or is below the floor.
local function kept_answers(session, floor, seqs)
  local key, answers = P .. ':a:' .. session, { floor = floor, highest = -1, from = floor }
  local packed = redis.call('GETRANGE', key, 0, MANY_BYTES - 1)
  local stored, from = -1, floor
  if packed ~= '' then stored, answers.highest, from = struct.unpack(ANSWERS, packed) end
  answers.floor = math.max(floor, stored)
  answers.from = answers.floor
  for _, seq in ipairs(seqs) do if seq < answers.floor or seq <= answers.highest then return nil end end
  if answers.floor > answers.highest then return answers end
  if #packed == MANY_BYTES and answers.floor - from < FEW then
    answers.from, answers.areMany = from, true
    return answers
  end
  packed = #packed < MANY_BYTES and packed or redis.call('GET', key)
  from = FIRST_ANSWER
  while from <= #packed do
    local seq, _, following = struct.unpack(ANSWER, packed, from)
    if seq >= answers.floor then answers[#answers + 1] = string.sub(packed, from, following - 1) end
    from = following
  end
  return answers
end

local function keep_packed(answers, seq, packed)
  answers[#answers + 1] = struct.pack(ANSWER, seq, #packed, packed)
  answers.highest = math.max(answers.highest, seq)
end

local function keep_answer(answers, seq, answer)
  keep_packed(answers, seq, cmsgpack.pack(answer))
end

local function save_answers(session, answers, lease)
  local key, packed = P .. ':a:' .. session, table.concat(answers)
  local head = struct.pack(ANSWERS, answers.floor, answers.highest, answers.from)
  if answers.areMany then
    redis.call('SETRANGE', key, 0, head)
    redis.call('APPEND', key, packed)
    redis.call('PEXPIRE', key, kept_for(lease))
  else redis.call('SET', key, head .. packed, 'PX', kept_for(lease)) end
end

local function now_of_server()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
end

-- A queue for a plain turn, which has to do with one of its totals. Nil if it is new, or if a newer version wrote it.
local function opened_plainly(total)
  local now = now_of_server()
  local stored = redis.call('HMGET', P .. ':q', 'format', 'rules', 'state', total)
  if tonumber(stored[1] or 0) ~= FORMAT or not stored[3] then return nil end
  local queue = { now = now, rules = rules_in(stored[2]), total = tonumber(stored[4] or 0) }
  unpack_state(queue, stored[3])
  return queue
end

local function save_plainly(queue, total, more)
  redis.call('HSET', P .. ':q', total, queue.total + more, 'state', pack_state(queue))
end

-- What each verb does, what is kept of its answer if not all, and how that becomes an answer again.
local verbs, remembered, recalled = {}, {}, {}

-- A module whose functions few calls need is made by those that do. Making a function costs more than most of its uses.
local function lazy(make)
  local made
  return function()
    made = made or make()
    return made
  end
end
