-- What plain turns share: see plain-consume.lua.

-- So many messages at most, so that their values fit in one command.
local MOST = 1000
-- Parts of a record: what changes when the message moves, and with it, where there is no consumer, up to the arrival.
local MOVED, UP_TO_ARRIVAL = '>BBBI4I4ddH', '>BBBI4I4ddHdc19'
-- All of it, of a message that nobody has claimed yet, without key and headers.
local WAITING = '>BBBI4I4ddHdc19HI4dI4I4'
-- How long the parts are, without the name of a consumer, and the place of the arrival. What is shorter is no record.
local MOVED_BYTES, UP_TO_ARRIVAL_BYTES, ARRIVAL_AT = 29, 56, 38

-- A queue for a turn that has to do with one of its totals. Nil if it is new, or if a newer version wrote it.
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
