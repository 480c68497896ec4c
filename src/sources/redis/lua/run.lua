-- Carries out the steps of one turn, in order. A step that was carried out before gets its first answer.

local cursor = 0
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

-- The steps, and the answers that each caller may still ask for again, read at once.
local steps, callers = {}, {}

local function note_caller(step)
  if step.session == '' then return end
  local caller = callers[step.session] or { raised = 0 }
  callers[step.session] = caller
  caller.raised = math.max(caller.raised, step.floor)
end

local function read_answers(session, caller)
  caller.answers = {}
  local packed = redis.call('GET', answers_key(session)) or ''
  caller.floor = answers_from(packed, 0).floor
  each_answer(packed, function(seq, answer) caller.answers[seq] = answer end)
end

local function once(queue, step)
  local caller = callers[step.session]
  if step.seq < math.max(caller.floor, step.floor) then return queues.refused('expired') end
  local kept = caller.answers[step.seq]
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
  caller.answers[step.seq], caller.fresh = cmsgpack.pack(keep), true
  return reply
end

-- What nobody will ask for again is left out.
local function save_caller(queue, session, caller)
  -- A write, so that whoever waits for replicas waits for what the first answer told, also over a new connection.
  if caller.asksAgain and not caller.fresh then
    redis.call('PEXPIRE', answers_key(session), kept_for(queue.lease))
  end
  if not caller.fresh then return end
  local answers = answers_from('', math.max(caller.floor, caller.raised))
  for seq, answer in pairs(caller.answers) do
    if seq >= answers.floor then keep_packed(answers, seq, answer) end
  end
  save_answers(session, answers, queue.lease)
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
  local step = { verb = take(), session = take(), seq = tonumber(take()), floor = tonumber(take()) }
  step.length = tonumber(take())
  step.at = cursor
  cursor = cursor + step.length
  steps[index] = step
  note_caller(step)
end

local queue = queues.open(P)
if queue.format > FORMAT then
  local reply = queues.refused('format', queue.format, FORMAT)
  local replies = {}
  for index in ipairs(steps) do replies[index] = reply end
  return replies
end
for session, caller in pairs(callers) do read_answers(session, caller) end
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
  if each.mayTrim then trim(each.prefix, redis.call('LLEN', each.ended), each.rules.maxOutcomes) end
end
for session, caller in pairs(callers) do save_caller(queue, session, caller) end
return replies
