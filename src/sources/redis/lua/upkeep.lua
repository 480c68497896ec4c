-- What has to be done from time to time, a bounded step in each call.

-- How many messages one call moves at most before it does its own work.
local STEP = 200
local RANK_STEP = 200
local AUDIT_STEP = 1000
local TIDY_MS, AUDIT_MS, REST_MS = 1000, 50, 60000

local upkeep = { STEP = STEP }

-- A record that somebody has deleted by hand leaves an entry that stands for nothing, and a payload that tells its
-- size.
function upkeep.strike_out(queue, set, found, id)
  changes.take_out(set, found)
  if set == queue.expiring then return end
  local size = redis.call('HSTRLEN', queue.payloads, id)
  changes.drop_payload(queue, id)
  changes.take_out(queue.expiring, id)
  queue.dropped = queue.dropped + 1
  if set == queue.dead then return end
  queue.bytes = math.max(0, queue.bytes - size)
  if set ~= queue.ready then return end
  changes.take_out(queue.oldest, found)
  queue.readyBytes = math.max(0, queue.readyBytes - size)
end

-- An entry of an earlier message of the same id, whose record somebody has deleted by hand.
function upkeep.disown(queue, set, found)
  changes.take_out(set, found)
  if set == queue.ready then changes.take_out(queue.oldest, found) end
  queue.dropped = queue.dropped + 1
end

local function do_due(queue, set, limit, work)
  if limit <= 0 then return 0 end
  changes.flush(set)
  local entries, ids = redis.call('ZRANGEBYSCORE', set.key, '-inf', queues.now, 'LIMIT', 0, limit), {}
  for index, found in ipairs(entries) do ids[index] = set == queue.expiring and found or moves.id_of(found) end
  changes.look_up(queue, ids)
  for index, id in ipairs(ids) do
    local message = changes.read(queue, id)
    if not message then upkeep.strike_out(queue, set, entries[index], id)
    elseif set == queue.expiring and message.expiresAt == queues.NEVER then changes.take_out(set, id)
    elseif set ~= queue.expiring and moves.member(message) ~= entries[index] then
      upkeep.disown(queue, set, entries[index])
    else work(queue, message) end
  end
  return #ids
end

local function promote(queue, message)
  changes.take_out(queue.delayed, moves.member(message))
  moves.put_back(queue, message)
end

-- Does what has become due; answers how many messages it moved, at most `limit`.
function upkeep.maintain(queue, limit)
  local moved = do_due(queue, queue.claimed, limit, ends().lapse)
  moved = moved + do_due(queue, queue.expiring, limit - moved, ends().expire)
  return moved + do_due(queue, queue.delayed, limit - moved, promote)
end

-- Puts some of what is ready where the present ageing wants it. The cursor is kept, so that any call can go on.
function upkeep.rank(queue)
  changes.flush(queue.ready)
  local scanned = redis.call('ZSCAN', queue.ready.key, queue.ranking - 1, 'COUNT', RANK_STEP)
  local members, ids = {}, {}
  for index = 1, #scanned[2], 2 do
    members[#members + 1] = scanned[2][index]
    ids[#ids + 1] = moves.id_of(scanned[2][index])
  end
  changes.look_up(queue, ids)
  for index, found in ipairs(members) do
    local message = changes.read(queue, ids[index])
    if message then changes.put(queue.ready, found, moves.place(queue, message)) end
    if queue.rules.stepMs then changes.put(queue.oldest, found, 0) end
  end
  queue.ranking = scanned[1] == '0' and 0 or tonumber(scanned[1]) + 1
end

local HOMES = {
  [moves.READY] = 'ready', [moves.DELAYED] = 'delayed', [moves.CLAIMED] = 'claimed', [moves.DEAD] = 'dead',
}

-- A message whose entry somebody has deleted by hand would never be found again: it is put back where it belongs.
local function check(queue, message)
  if moves.outlived(queue, message) then return moves.forget_outcome(queue, message.id) end
  local set = queue[HOMES[message.state] or 'none']
  if not set then return end
  changes.flush(set)
  local found = message.state == moves.DEAD and message.id or moves.member(message)
  if redis.call('ZSCORE', set.key, found) then return end
  if message.state == moves.CLAIMED then ends().lapse(queue, message)
  elseif message.state == moves.DEAD then changes.put(set, found, changes.extra(message).number)
  elseif message.state == moves.DELAYED then
    moves.expect(queue, message.arrivedAt)
    changes.put(set, found, message.arrivedAt)
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
