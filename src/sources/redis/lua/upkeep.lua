-- What has to be done from time to time, a bounded step in each call.

-- How many messages one call moves at most before it does its own work.
local STEP = 200
local TRIM_STEP = 1000
local RANK_STEP = 500
local AUDIT_STEP = 100
local TIDY_MS = 1000

-- A record that somebody has deleted by hand leaves an entry that stands for nothing.
local function strike_out(queue, set, found)
  take_out(set, found)
  queue.dropped = queue.dropped + 1
end

local function do_due(queue, set, limit, work)
  if limit <= 0 or first(set) > now then return 0 end
  local ids = up_to(set, now, limit)
  look_up(queue, ids)
  for _, id in ipairs(ids) do
    local message = read(queue, id)
    if message then work(queue, message) else strike_out(queue, set, id) end
  end
  return #ids
end

local function promote(queue, message)
  take_out(queue.delayed, message.id)
  put_back(queue, message)
end

-- Does what has become due; answers how many messages it moved, at most `limit`.
local function maintain(queue, limit)
  queue.known = queue.known or next_at(queue)
  local moved = do_due(queue, queue.claimed, limit, lapse)
  moved = moved + do_due(queue, queue.expiring, limit - moved, expire)
  return moved + do_due(queue, queue.delayed, limit - moved, promote)
end

-- Forgets outcomes that are too many or too old.
local function trim(queue)
  local excess = length(queue.ended) - queue.rules.maxOutcomes
  local ids = excess > 0 and range(queue.ended, 0, math.min(excess, TRIM_STEP) - 1) or {}
  if #ids < TRIM_STEP then
    local old = up_to(queue.ended, (now - queue.rules.outcomesMs) * ENDS_PER_MS, TRIM_STEP)
    if #old > #ids then ids = old end
  end
  for _, id in ipairs(ids) do
    take_out(queue.ended, id)
    remove(queue, id)
  end
end

-- Puts some of what is ready where the present ageing wants it. The cursor is kept, so that any call can go on.
local function rank(queue)
  flush(queue.ready)
  local found = redis.call('ZSCAN', queue.ready.key, whole(queue.ranking - 1), 'COUNT', RANK_STEP)
  local ids = {}
  for index = 1, #found[2], 2 do ids[#ids + 1] = id_of(found[2][index]) end
  look_up(queue, ids)
  for index = 1, #found[2], 2 do
    local message = read(queue, id_of(found[2][index]))
    if message then put(queue.ready, found[2][index], place(queue, message)) end
    if queue.rules.stepMs then put(queue.oldest, found[2][index], 0) end
  end
  queue.ranking = found[1] == '0' and 0 or tonumber(found[1]) + 1
end

local HOMES = { [READY] = 'ready', [DELAYED] = 'delayed', [CLAIMED] = 'claimed', [DEAD] = 'dead' }

-- A message whose entry somebody has deleted by hand would never be found again: it is put back where it belongs.
local function check(queue, message)
  local home = HOMES[message.state]
  if not home or redis.call('ZSCORE', queue[home].key, message.state == READY and member(message) or message.id) then
    return
  end
  if message.state == CLAIMED then return lapse(queue, message) end
  if message.state == READY then
    queue.readyBytes = queue.readyBytes - message.size
    put_back(queue, message)
  elseif message.state == DELAYED then put(queue.delayed, message.id, message.arrivedAt)
  else put(queue.dead, message.id, message.number) end
end

-- Looks at some records while there is nothing better to do.
local function audit(queue)
  local found = redis.call('HSCAN', queue.messages.key, whole(queue.audited), 'COUNT', AUDIT_STEP)
  for index = 1, #found[2], 2 do
    local id = found[2][index]
    if not queue.messages.changed[id] then check(queue, unpacked(id, found[2][index + 1])) end
  end
  queue.audited = tonumber(found[1])
end

-- What can wait until there is nothing else to do, and is done once in a while then.
local function tidy(queue)
  if queue.tidyAt > now then return end
  queue.tidyAt = now + TIDY_MS
  audit(queue)
  trim(queue)
end

-- Before the steps of a turn: what is due is done. A queue whose places are reckoned anew gets on with that.
local function begin(queue, limit)
  -- A server that is out of memory refuses a call whose first write adds something. Settling frees memory, and leases
  -- must be renewed; so the first write is one that removes, though there is nothing to remove.
  redis.call('HDEL', queue.key, '')
  if queue.ranking > 0 then rank(queue) end
  queue.moved = maintain(queue, math.min(STEP, limit))
end
