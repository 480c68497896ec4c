-- Ends claims: each command alone compares the claim's token, and is one step with the messages it carries.

-- A claim whose token is the live one, and when its lease ends. It was looked up before.
local function live_claim(queue, id, token)
  local message = read(queue, id)
  if not message or message.state ~= CLAIMED or whole(message.fence) ~= token then return nil end
  local at = score(queue.claimed, id)
  if at <= now then return nil end
  return message, at
end

local function look_up_claims(queue, ids)
  look_up(queue, ids)
  look_up_scores(queue.claimed, ids)
end

local function carry_over(from, message, parcels, leave)
  local plans = {}
  for index, parcel in ipairs(parcels) do
    local to = open(parcel.prefix)
    local planned, refusing = plan(to, parcel.batch, to == from and message or nil)
    if refusing then return refusing end
    plans[index] = { to, parcel.batch, planned }
  end
  lift(from, message)
  from.forwarded = from.forwarded + 1
  leave()
  for _, each in ipairs(plans) do admit(each[1], each[2], each[3]) end
end

local settle = {}

settle.ack = function(queue, message, command)
  if #command.parcels > 0 then
    return carry_over(queue, message, command.parcels, function() finish(queue, message, DONE, command.result) end)
      or 'forwarded'
  end
  lift(queue, message)
  queue.acked = queue.acked + 1
  finish(queue, message, DONE, command.result)
  return 'acked'
end

settle.release = function(queue, message, command)
  lift(queue, message)
  if not command.delivered then message.deliveries = message.deliveries - 1
  elseif not may_return(queue, message) then return 'dead' end
  put_back(queue, message)
  return 'ready'
end

settle.requeue = function(queue, message, command)
  lift(queue, message)
  if command.reason then note_failure(message, command.reason) end
  local mayReturn
  if command.counted then
    mayReturn = fail_attempt(queue, message, command.reason or ('attempt ' .. message.attempt .. ' failed'))
  else mayReturn = may_return(queue, message) end
  if not mayReturn then return 'dead' end
  if command.delay > 0 then
    delay(queue, message, command.delay)
    return 'delayed'
  end
  put_back(queue, message)
  return 'ready'
end

settle['dead-letter'] = function(queue, message, command)
  if #command.parcels > 0 then
    local leave = function() finish(queue, message, ELSEWHERE, nil, command.reason) end
    return carry_over(queue, message, command.parcels, leave) or 'dead'
  end
  lift(queue, message)
  note_failure(message, command.reason)
  bury(queue, message, command.reason, message.attempt)
  return 'dead'
end

local function take_parcels(take)
  local parcels = {}
  for index = 1, tonumber(take()) do parcels[index] = { prefix = take(), batch = take_batch(take) } end
  return parcels
end

local function take_optional(take)
  return take() == '1' and take() or nil
end

-- Every command has all fields, so that reading one needs no knowledge of its kind.
local function take_command(take)
  return { kind = take(), id = take(), token = take(), delivered = take() == '1', counted = take() == '1',
    delay = tonumber(take()), reason = take_optional(take), result = take_optional(take), parcels = take_parcels(take) }
end

local function settle_one(queue, command)
  local message = live_claim(queue, command.id, command.token)
  if not message then return 'stale' end
  if message.cancel and command.kind ~= 'ack' then
    lift(queue, message)
    end_cancelled(queue, message)
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
  look_up_claims(queue, ids)
  for index, command in ipairs(commands) do results[index] = settle_one(queue, command) end
  return results
end

local function renew_one(queue, renewal)
  if renewal.lease > queue.lease then queue.lease = renewal.lease end
  local message = live_claim(queue, renewal.id, renewal.token)
  if not message then return { 'stale', 0 } end
  local at = instant(now + renewal.lease)
  expect(queue, at)
  take_out(queue.claimed, message.id)
  put(queue.claimed, message.id, at)
  if renewal.progress then
    message.progress = renewal.progress
    write(queue, message)
  end
  return { message.cancel and 'cancelled' or 'renewed', at }
end

verbs.renew = function(queue, take)
  local renewals, ids, results = {}, {}, {}
  for index = 1, tonumber(take()) do
    renewals[index] = { id = take(), token = take(), lease = tonumber(take()), progress = take_optional(take) }
    ids[index] = renewals[index].id
  end
  look_up_claims(queue, ids)
  for index, renewal in ipairs(renewals) do results[index] = renew_one(queue, renewal) end
  return results
end
