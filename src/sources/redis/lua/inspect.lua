-- Settings, listings, outcomes: what is asked now and then.

local function given(value, default)
  if value == nil or value == cjson.null then return default end
  return value
end

local function rules_of(named)
  local limits, retention, ageing = given(named.limits, {}), given(named.retention, {}), given(named.ageing, {})
  return {
    maxDeliveries = given(named.maxDeliveries, DEFAULT_RULES.maxDeliveries),
    stepMs = given(ageing.stepMs, false), cap = given(ageing.cap, false),
    maxLength = given(limits.maxLength, false), maxBytes = given(limits.maxBytes, false),
    maxPayloadBytes = given(limits.maxPayloadBytes, DEFAULT_RULES.maxPayloadBytes),
    whenFull = given(limits.whenFull, DEFAULT_RULES.whenFull),
    outcomesMs = given(retention.outcomesMs, DEFAULT_RULES.outcomesMs),
    maxOutcomes = given(retention.maxOutcomes, DEFAULT_RULES.maxOutcomes),
  }
end

-- Each setting is kept as the text that was given: to write out its numbers here would lose digits.
local SETTINGS = { 'codec', 'maxDeliveries', 'ageing', 'limits', 'retention' }

local function named_settings(queue)
  local fields, named = {}, {}
  for index, name in ipairs(SETTINGS) do fields[index] = 'setting:' .. name end
  for index, text in ipairs(redis.call('HMGET', queue.key, unpack(fields))) do named[SETTINGS[index]] = text or nil end
  return named
end

local function store_settings(queue, named)
  local decoded, fields = {}, {}
  for name, text in pairs(named) do
    decoded[name] = cjson.decode(text)
    fields[#fields + 1] = 'setting:' .. name
    fields[#fields + 1] = text
  end
  queue.rules = rules_of(decoded)
  redis.call('HSET', queue.key, 'rules', cmsgpack.pack(queue.rules), unpack(fields))
end

local function take_settings(take)
  local settings = {}
  for _ = 1, tonumber(take()) do
    local name = take()
    settings[name] = take()
  end
  return settings
end

local function settings_reply(named)
  local reply = {}
  for name, text in pairs(named) do
    reply[#reply + 1] = name
    reply[#reply + 1] = text
  end
  return reply
end

-- Places are reckoned anew, a step here and the rest in calls that follow.
local function begin_ranking(queue)
  if not queue.rules.stepMs then
    changes.flush(queue.oldest)
    redis.call('UNLINK', queue.oldest.key)
  end
  queue.ranking = 1
  upkeep().rank(queue)
end

verbs.settings = function(queue, take)
  local named, proposed, changed = named_settings(queue), take_settings(take), {}
  for name, value in pairs(proposed) do
    if named[name] == nil then
      named[name] = value
      changed[name] = true
    end
  end
  if next(changed) then store_settings(queue, named) end
  if changed.ageing then begin_ranking(queue) end
  return settings_reply(named)
end

verbs.configure = function(queue, take)
  local named, wanted = named_settings(queue), take_settings(take)
  for name, value in pairs(wanted) do named[name] = value end
  store_settings(queue, named)
  if wanted.ageing then begin_ranking(queue) end
  queue.roused = true
  return settings_reply(named)
end

verbs.rank = function(queue)
  return queue.ranking
end

local function oldest_age(queue)
  local oldest = admission().oldest_ready(queue)
  return oldest and math.max(0, queues.now - moves.arrived_at(oldest)) or 0
end

verbs.stats = function(queue)
  local ready, delayed = changes.length(queue.ready), changes.length(queue.delayed)
  local claimed, dead = changes.length(queue.claimed), changes.length(queue.dead)
  return { queue.paused, ready, delayed, claimed, dead, oldest_age(queue), queue.enqueued, queue.acked,
    queue.forwarded, queue.purged, queue.expired, queue.cancelled, queue.dropped }
end

verbs.pause = function(queue)
  queue.paused = 1
  return 1
end

verbs.resume = function(queue)
  queue.paused, queue.roused = 0, true
  return 1
end

verbs.cancel = function(queue, take)
  local message = moves.find(queue, take())
  if not message then return 'unknown' end
  if message.state == READY or message.state == DELAYED then
    moves.lift(queue, message)
    ends().cancelled(queue, message)
    return 'cancelled'
  end
  if message.state ~= CLAIMED then return 'finished' end
  changes.set_flag(message, changes.CANCEL, true)
  changes.write(queue, message)
  queues.hint(queue, 'cancel:' .. message.id)
  return 'cancelling'
end

verbs.outcome = function(queue, take)
  local message, watch = moves.find(queue, take()), take() == '1'
  if not message then return { 'unknown' } end
  local more = changes.extra(message)
  if message.state == DONE then return more.result and { 'done', more.result } or { 'done' } end
  if message.state == DEAD or message.state == ELSEWHERE then return { 'dead', more.reason or '' } end
  if message.state == CANCELLED then return { 'cancelled' } end
  if message.state == EXPIRED then return { 'expired' } end
  if watch and not changes.has(message, changes.WATCHED) then
    changes.set_flag(message, changes.WATCHED, true)
    changes.write(queue, message)
  end
  return { 'pending' }
end

-- The rank after an entry that was there once: that of the name that would come right after it.
local function rank_after(queue, set, after)
  if after == '' then return 0 end
  local score, found = string.match(after, '^([^:]*):(.*)$')
  if not tonumber(score) then return 0 end
  -- No two died at once, and an id may come right after another.
  if set == queue.dead then return redis.call('ZCOUNT', set.key, '-inf', score) end
  local probe = found .. '\0'
  redis.call('ZADD', set.key, score, probe)
  local rank = redis.call('ZRANK', set.key, probe)
  redis.call('ZREM', set.key, probe)
  return rank
end

-- Entries and their scores, and where the next page begins or ''.
local function page(queue, set, after, limit)
  changes.flush(set)
  local from = rank_after(queue, set, after)
  local found = redis.call('ZRANGE', set.key, from, from + limit, 'WITHSCORES')
  if #found <= 2 * limit then return found, '' end
  found[2 * limit + 1], found[2 * limit + 2] = nil, nil
  return found, found[2 * limit] .. ':' .. found[2 * limit - 1]
end

local function shown(message, bytes)
  local more = changes.extra(message)
  return { message.id, changes.pack(message), bytes, more.progress or '', more.reason or '', more.attempts or 0,
    more.errors and cjson.encode(more.errors) or '[]' }
end

verbs.list = function(queue, take)
  local state, after, limit = take(), take(), tonumber(take())
  local found, following = page(queue, queue[state], after, limit)
  local entries, items = {}, {}
  for index = 1, #found, 2 do entries[#entries + 1] = found[index] end
  local ids = upkeep().ids_in(queue, queue[state], entries)
  for index, bytes in ipairs(changes.payloads_of(queue, ids)) do
    local message = changes.read(queue, ids[index])
    if message then items[#items + 1] = shown(message, bytes or '') end
  end
  return { items, following }
end
