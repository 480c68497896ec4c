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
local READY, DELAYED, CLAIMED, DEAD, DONE, ELSEWHERE, CANCELLED, EXPIRED = 0, 1, 2, 3, 4, 5, 6, 7
-- Numbers of arrivals begin anew here.
local ARRIVALS = 4294967296
local NEVER, LATEST = -1, 9007199254740991

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

local function now_of_server()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
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
