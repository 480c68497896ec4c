-- Carries out the steps of one turn, in order. A step that was carried out before gets its first answer.

-- How long answers are kept at least after their caller was last heard of.
local KEPT_MS = 3600000
-- Instants beyond would be written with an exponent, which PEXPIREAT does not take.
local MOST_KEPT_MS = 2251799813685248
local FEW = 100

local cursor = 0
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

-- The steps, and the answers that each caller may still ask for again, read at once.
local steps, callers = {}, {}

local function note_caller(step)
  if step.session == '' then return end
  local caller = callers[step.session]
  if not caller then
    caller = { key = P .. ':a:' .. step.session, raised = 0, fields = { 'floor', 'until' }, kept = {}, fresh = {} }
    callers[step.session] = caller
  end
  caller.raised = math.max(caller.raised, step.floor)
  caller.fields[#caller.fields + 1] = step.seq
end

local function read_answers(caller)
  for index, value in ipairs(changes.fields(caller.key, caller.fields)) do caller.kept[caller.fields[index]] = value end
  caller.floor, caller.keptUntil = tonumber(caller.kept.floor or 0), tonumber(caller.kept['until'] or 0)
end

local function once(queue, step)
  local caller = callers[step.session]
  if tonumber(step.seq) < math.max(caller.floor, step.floor) then return queues.refused('expired') end
  local kept = caller.kept[step.seq]
  if kept then
    caller.asksAgain = true
    local answer = cmsgpack.unpack(kept)
    return recalled[step.verb] and recalled[step.verb](queue, answer) or answer
  end
  local reply = verbs[step.verb](queue, take)
  if type(reply) == 'table' and reply[1] == '!' then return reply end
  local keep = reply
  if remembered[step.verb] then keep = remembered[step.verb](reply, queue) end
  if keep == nil then return reply end
  caller.kept[step.seq] = cmsgpack.pack(keep)
  caller.fresh[#caller.fresh + 1] = step.seq
  caller.fresh[#caller.fresh + 1] = caller.kept[step.seq]
  return reply
end

-- Answers that nobody will ask for again. Mostly those to the last few requests.
local function below_floor(caller)
  local gone = {}
  if caller.raised - caller.floor <= FEW then
    for seq = caller.floor, caller.raised - 1 do gone[#gone + 1] = seq end
    return gone
  end
  for _, field in ipairs(redis.call('HKEYS', caller.key)) do
    local seq = tonumber(field)
    if seq and seq < caller.raised then gone[#gone + 1] = field end
  end
  return gone
end

local function save_answers(queue, caller)
  local fresh = caller.fresh
  -- A write, so that whoever waits for replicas waits for what the first answer told, also over a new connection.
  if caller.asksAgain then redis.call('PEXPIREAT', caller.key, caller.keptUntil) end
  if not fresh[1] then return end
  if caller.raised > caller.floor then
    changes.in_chunks('HDEL', caller.key, below_floor(caller))
    fresh[#fresh + 1] = 'floor'
    fresh[#fresh + 1] = caller.raised
  end
  local keepMs = math.min(math.max(KEPT_MS, 2 * queue.lease), MOST_KEPT_MS)
  local expires = caller.keptUntil < queues.now + keepMs
  if expires then
    fresh[#fresh + 1] = 'until'
    fresh[#fresh + 1] = queues.now + 2 * keepMs
  end
  changes.in_chunks('HSET', caller.key, fresh)
  if expires then redis.call('PEXPIREAT', caller.key, queues.now + 2 * keepMs) end
end

-- Before the steps of a turn: what is due is done, unless a sweep is to say how much of it. A queue whose places are
-- reckoned anew gets on with that.
local function begin(queue, isSweep)
  -- A server that is out of memory refuses a call whose first write adds something. Settling frees memory, and leases
  -- must be renewed; so the first write is one that removes, though there is nothing to remove.
  redis.call('HDEL', queue.key, '')
  queue.moved = 0
  if queue.ranking > 0 then upkeep().rank(queue) end
  if not isSweep and queue.nextAt <= queues.now then queue.moved = upkeep().maintain(queue, upkeep().STEP) end
end

for index = 1, tonumber(take()) do
  local step = { verb = take(), session = take(), seq = take(), floor = tonumber(take()), length = tonumber(take()) }
  step.at = cursor
  cursor = cursor + step.length
  steps[index] = step
  note_caller(step)
end

local queue = queues.open(P)
if queue.format > queues.FORMAT then
  local reply = queues.refused('format', queue.format, queues.FORMAT)
  local replies = {}
  for index in ipairs(steps) do replies[index] = reply end
  return replies
end
for _, caller in pairs(callers) do read_answers(caller) end
if steps[1].verb ~= 'enqueue' then begin(queue, steps[1].verb == 'sweep') end
local replies = {}
for index, step in ipairs(steps) do
  cursor = step.at
  replies[index] = step.session == '' and verbs[step.verb](queue, take) or once(queue, step)
end
for _, each in pairs(queues.opened) do
  if each.ends[1] then moves.list_ends(each) end
  moves.tell(each)
  changes.save(each)
end
for _, caller in pairs(callers) do save_answers(queue, caller) end
return replies
