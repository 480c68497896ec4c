-- What has to be done from time to time, a bounded step in each call.

-- How many messages one call moves at most before it does its own work.
local STEP = 200
local RANK_STEP = 200
local AUDIT_STEP = 1000
local TIDY_MS, AUDIT_MS, REST_MS = 1000, 50, 60000

local upkeep = { STEP = STEP }

local HOMES = {
  [READY] = 'ready', [DELAYED] = 'delayed', [CLAIMED] = 'claimed', [DEAD] = 'dead',
}

local function entry_of(set, message)
  return set.byId and message.id or moves.member(message)
end

local function id_in(set, entry)
  return set.byId and entry or moves.id_of(entry)
end

-- The ids of entries, looked up.
function upkeep.ids_in(queue, set, entries)
  local ids = {}
  for index, entry in ipairs(entries) do ids[index] = id_in(set, entry) end
  changes.look_up(queue, ids)
  return ids
end

-- An entry stands for nothing when somebody has deleted its record by hand. Of a message whose id has not been used
-- again there is still the payload, which tells its size.
function upkeep.strike_out(queue, set, entry)
  changes.take_out(set, entry)
  if set == queue.expiring then return end
  queue.dropped = queue.dropped + 1
  if set == queue.ready then changes.take_out(queue.oldest, entry) end
  local id = id_in(set, entry)
  if changes.read(queue, id) then return end
  local size = redis.call('HSTRLEN', queue.payloads, id)
  changes.drop_payload(queue, id)
  changes.take_out(queue.expiring, id)
  if set ~= queue.dead then queue.bytes = math.max(0, queue.bytes - size) end
  if set == queue.ready then queue.readyBytes = math.max(0, queue.readyBytes - size) end
end

local function belongs(queue, set, message)
  if set == queue.expiring then return message.expiresAt ~= NEVER and message.state ~= CLAIMED end
  return queue[HOMES[message.state] or 'none'] == set
end

-- The message that an entry stands for. One that stands for none is struck out.
function upkeep.entered(queue, set, entry)
  local message = changes.read(queue, id_in(set, entry))
  if message and belongs(queue, set, message) and entry_of(set, message) == entry then return message end
  upkeep.strike_out(queue, set, entry)
end

-- Works on the messages of entries, and answers how many entries there were.
function upkeep.each(queue, set, entries, work)
  upkeep.ids_in(queue, set, entries)
  for _, entry in ipairs(entries) do
    local message = upkeep.entered(queue, set, entry)
    if message then work(queue, message) end
  end
  return #entries
end

local function do_due(queue, set, limit, work)
  if limit <= 0 then return 0 end
  changes.flush(set)
  local due = redis.call('ZRANGEBYSCORE', set.key, '-inf', queues.now, 'LIMIT', 0, limit)
  return upkeep.each(queue, set, due, work)
end

local function promote(queue, message)
  changes.take_out(queue.delayed, moves.member(message))
  moves.put_back(queue, message)
end

-- Does what has become due; answers how many messages it moved, at most `limit`.
function upkeep.maintain(queue, limit)
  local moved = do_due(queue, queue.claimed, limit, ends().lapse)
  moved = moved + do_due(queue, queue.expiring, limit - moved, ends().expire)
  moved = moved + do_due(queue, queue.delayed, limit - moved, promote)
  moves.look_ahead(queue)
  return moved
end

-- Puts some of what is ready where the present ageing wants it. The cursor is kept, so that any call can go on.
function upkeep.rank(queue)
  changes.flush(queue.ready)
  local scanned = redis.call('ZSCAN', queue.ready.key, queue.ranking - 1, 'COUNT', RANK_STEP)
  local members = {}
  for index = 1, #scanned[2], 2 do members[#members + 1] = scanned[2][index] end
  upkeep.each(queue, queue.ready, members, function(_, message)
    changes.put(queue.ready, moves.member(message), moves.place(queue, message))
    if queue.rules.stepMs then changes.put(queue.oldest, moves.member(message), 0) end
  end)
  queue.ranking = scanned[1] == '0' and 0 or tonumber(scanned[1]) + 1
end

-- A message whose entry somebody has deleted by hand would never be found again: it is put back where it belongs.
local function check(queue, message)
  if moves.outlived(queue, message) then return moves.forget_outcome(queue, message.id) end
  local set = queue[HOMES[message.state] or 'none']
  if not set then return end
  changes.flush(set)
  local found = entry_of(set, message)
  if redis.call('ZSCORE', set.key, found) then return end
  if message.state == CLAIMED then ends().lapse(queue, message)
  elseif message.state == DEAD then changes.put(set, found, changes.extra(message).number)
  elseif message.state == DELAYED then
    local at = moves.arrived_at(message.arrival)
    moves.expect(queue, at)
    changes.put(set, found, at)
  else
    queue.readyBytes = queue.readyBytes - message.size
    moves.put_back(queue, message)
  end
end

-- Looks at some records while there is nothing better to do.
local function audit(queue)
  local scanned = redis.call('HSCAN', queue.messages, queue.audited, 'COUNT', AUDIT_STEP)
  for index = 1, #scanned[2], 2 do
    local id = scanned[2][index]
    if queue.known[id] == nil then
      queue.known[id] = changes.readable(id, scanned[2][index + 1])
      if queue.known[id] then check(queue, queue.known[id]) end
    end
  end
  queue.audited = tonumber(scanned[1])
end

-- Whether there are more records than entries: somebody has deleted entries by hand.
local function has_strays(queue)
  local entries = changes.length(queue.ready) + changes.length(queue.delayed) + changes.length(queue.claimed)
    + changes.length(queue.dead) + redis.call('LLEN', queue.ended)
  return redis.call('HLEN', queue.messages) > entries
end

-- What can wait until there is nothing else to do, and is done once in a while then. A search goes on soon, until all
-- records have been looked at.
function upkeep.tidy(queue)
  if queue.tidyAt > queues.now then return end
  moves.list_ends(queue)
  queue.tidyAt = queues.now + TIDY_MS
  if queue.audited == 0 and not has_strays(queue) then return end
  audit(queue)
  queue.tidyAt = queues.now + (queue.audited == 0 and REST_MS or AUDIT_MS)
  if queue.audited ~= 0 then moves.expect(queue, queue.tidyAt) end
end

return upkeep
