-- Ends claims: each command alone compares the claim's token, and is one step with the messages it carries.

-- A claim whose token is the live one.
local function live_claim(queue, id, token)
  local message = changes.read(queue, id)
  if not message or message.state ~= CLAIMED or message.at <= queues.now then return nil end
  return message.fence == tonumber(token) and message or nil
end

local function carry_over(from, message, parcels, leave)
  local plans = {}
  for index, parcel in ipairs(parcels) do
    local to = queues.open(parcel.prefix)
    if to.format > FORMAT then return queues.refused('format', to.format, FORMAT) end
    local planned, refusing = admission().plan(to, parcel.batch, to == from and message or nil)
    if refusing then return refusing end
    plans[index] = { to, parcel.batch, planned }
  end
  moves.lift(from, message)
  from.forwarded = from.forwarded + 1
  leave()
  for _, each in ipairs(plans) do admission().admit(each[1], each[2], each[3]) end
end

local settle = {}

settle.ack = function(queue, message, command)
  if command.parcels then
    local leave = function() moves.finish(queue, message, DONE, command.result) end
    return carry_over(queue, message, command.parcels, leave) or 'forwarded'
  end
  moves.lift(queue, message)
  queue.acked = queue.acked + 1
  moves.finish(queue, message, DONE, command.result)
  return 'acked'
end

settle.release = function(queue, message, command)
  moves.lift(queue, message)
  if not command.delivered then message.deliveries = message.deliveries - 1
  elseif not ends().may_return(queue, message) then return 'dead' end
  moves.put_back(queue, message)
  return 'ready'
end

settle.requeue = function(queue, message, command)
  moves.lift(queue, message)
  if command.reason then ends().note_failure(message, command.reason) end
  local mayReturn
  if command.counted then
    local reason = command.reason or ('attempt ' .. message.attempt .. ' failed')
    mayReturn = ends().fail_attempt(queue, message, reason)
  else mayReturn = ends().may_return(queue, message) end
  if not mayReturn then return 'dead' end
  if command.delay > 0 then
    moves.delay(queue, message, command.delay)
    return 'delayed'
  end
  moves.put_back(queue, message)
  return 'ready'
end

settle['dead-letter'] = function(queue, message, command)
  if command.parcels then
    local leave = function() moves.finish(queue, message, ELSEWHERE, nil, command.reason) end
    return carry_over(queue, message, command.parcels, leave) or 'dead'
  end
  moves.lift(queue, message)
  ends().note_failure(message, command.reason)
  ends().bury(queue, message, command.reason, message.attempt)
  return 'dead'
end

local function take_parcels(take)
  local parcels = {}
  for index = 1, tonumber(take()) do parcels[index] = { prefix = take(), batch = admission().take_batch(take) } end
  return parcels
end

local function take_optional(take)
  if take() == '1' then return take() end
end

-- An ack with nothing to it comes as three arguments; the other commands have all fields.
local function take_command(take)
  local kind, id, token = take(), take(), take()
  if kind == '' then return { kind = 'ack', id = id, token = token } end
  return { kind = kind, id = id, token = token, delivered = take() == '1', counted = take() == '1',
    delay = tonumber(take()), reason = take_optional(take), result = take_optional(take),
    parcels = take() == '1' and take_parcels(take) or nil }
end

local function settle_one(queue, command)
  local message = live_claim(queue, command.id, command.token)
  if not message then return 'stale' end
  if command.kind ~= 'ack' and changes.has(message, changes.CANCEL) then
    moves.lift(queue, message)
    ends().cancelled(queue, message)
    return 'cancelled'
  end
  return settle[command.kind](queue, message, command)
end

verbs.settle = function(queue, take)
  local commands, ids, results = {}, {}, {}
  for index = 1, tonumber(take()) do
    commands[index] = take_command(take)
    ids[index] = commands[index].id
  end
  changes.look_up(queue, ids)
  local acked = 0
  for index, command in ipairs(commands) do
    results[index] = settle_one(queue, command)
    if results[index] == 'acked' then acked = acked + 1 end
  end
  -- Nearly always all are acked, which needs no list.
  return acked == #results and acked or results
end

local function renew_one(queue, renewal)
  if renewal.lease > queue.lease then queue.lease = renewal.lease end
  local message = live_claim(queue, renewal.id, renewal.token)
  if not message then return { 'stale', 0 } end
  message.at = queues.instant(queues.now + renewal.lease)
  moves.expect(queue, message.at)
  changes.put(queue.claimed, moves.member(message), message.at)
  if renewal.progress then changes.extra(message).progress = renewal.progress end
  changes.write(queue, message)
  return { changes.has(message, changes.CANCEL) and 'cancelled' or 'renewed', message.at }
end

verbs.renew = function(queue, take)
  local renewals, ids, results = {}, {}, {}
  for index = 1, tonumber(take()) do
    renewals[index] = { id = take(), token = take(), lease = tonumber(take()), progress = take_optional(take) }
    ids[index] = renewals[index].id
  end
  changes.look_up(queue, ids)
  for index, renewal in ipairs(renewals) do results[index] = renew_one(queue, renewal) end
  return results
end

return {
  live_claim = live_claim,
}
