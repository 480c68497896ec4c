-- The answers that a caller may ask for again, in one string: the number below which none is given again, the highest
-- number that has one, and the number from which on they are stored; then for each its number and what was answered.
local ANSWERS, ANSWER, FIRST_ANSWER = '>ddd', '>dI4c0', 25
-- Where there are more bytes of them, new ones are added behind, and the old ones are left alone until so many are done
-- with: a call should not cost more when one request is under way for long, and many pass it.
local MANY_BYTES, FEW = 4096, 100
-- How long they are kept at least after their caller was last heard of. More would not be taken as an expiry.
local KEPT_MS, MOST_KEPT_MS = 7200000, 2251799813685248

local function answers_key(session)
  return P .. ':a:' .. session
end

local function kept_for(lease)
  return string.format('%.0f', math.min(math.max(KEPT_MS, 4 * lease), MOST_KEPT_MS))
end

-- Those of one caller, none of them read yet. The floor never sinks.
local function answers_from(packed, floor)
  if packed == '' then return { floor = floor, highest = -1, from = floor } end
  local stored, highest, from = struct.unpack(ANSWERS, packed)
  return { floor = math.max(floor, stored), highest = highest, from = from }
end

local function each_answer(packed, work)
  local from = FIRST_ANSWER
  while from <= #packed do
    local seq, answer, following = struct.unpack(ANSWER, packed, from)
    work(seq, answer)
    from = following
  end
end

local function keep_packed(answers, seq, packed)
  answers[#answers + 1] = struct.pack(ANSWER, seq, #packed, packed)
  answers.highest = math.max(answers.highest, seq)
end

local function keep_answer(answers, seq, answer)
  keep_packed(answers, seq, cmsgpack.pack(answer))
end

-- Which answers stay. Nil if one of these requests is below the floor, or may have been answered before.
local function kept_answers(session, floor, seqs)
  local packed = redis.call('GETRANGE', answers_key(session), 0, MANY_BYTES - 1)
  local answers = answers_from(packed, floor)
  for _, seq in ipairs(seqs) do if seq < answers.floor or seq <= answers.highest then return nil end end
  local isWhole, stay = #packed < MANY_BYTES, answers.floor <= answers.highest
  answers.areMany = stay and not isWhole and answers.floor - answers.from < FEW
  if answers.areMany then return answers end
  answers.from = answers.floor
  if not stay then return answers end
  each_answer(isWhole and packed or redis.call('GET', answers_key(session)), function(seq, answer)
    if seq >= answers.floor then keep_packed(answers, seq, answer) end
  end)
  return answers
end

local function save_answers(session, answers, lease)
  local key, packed = answers_key(session), table.concat(answers)
  local head = struct.pack(ANSWERS, answers.floor, answers.highest, answers.from)
  if answers.areMany then
    redis.call('SETRANGE', key, 0, head)
    redis.call('APPEND', key, packed)
    redis.call('PEXPIRE', key, kept_for(lease))
  else redis.call('SET', key, head .. packed, 'PX', kept_for(lease)) end
end
