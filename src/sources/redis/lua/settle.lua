-- Ends claims: each command alone compares the claim's token, and is one step with the messages it carries.

local function carry_over(from, message, parcels, leave)
  local plans = {}
  for index, parcel in ipairs(parcels) do
    local to = enter(parcel.prefix)
    local planned, refused = plan(to, parcel.batch, to == from and message or nil)
    if refused then return refused end
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
  give_back(queue, message)
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
  give_back(queue, message)
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
  local results = {}
  for index = 1, tonumber(take()) do results[index] = settle_one(queue, take_command(take)) end
  return results
end

verbs.renew = function(queue, take)
  local results = {}
  for index = 1, tonumber(take()) do
    local id, token, lease, progress = take(), take(), tonumber(take()), take_optional(take)
    queue.lease = math.max(queue.lease, lease)
    local message = live_claim(queue, id, token)
    if message then
      local at = instant(now + lease)
      redis.call('ZADD', queue.claimed, at, id)
      if progress then
        message.progress = progress
        write(queue, message)
      end
      expect(queue, at)
      results[index] = { message.cancel and 'cancelled' or 'renewed', string.format('%.0f', at) }
    else results[index] = { 'stale', '0' } end
  end
  return results
end

verbs.sweep = function(queue, take)
  take()
  return { queue.moved, next_due(queue) }
end
