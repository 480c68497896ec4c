-- Outcomes are listed, the oldest first, and forgotten where they are too many.

-- So many more than are wanted are no matter; so many are forgotten at once.
local MOST_TOO_MANY, TRIM_STEP = 50, 1000

-- Forgets outcomes of the `listed` ones. Records are changed where they are stored, so those of this call have to be.
local function trim(prefix, listed, most)
  local excess = listed - most
  if excess <= math.min(MOST_TOO_MANY, most / 100) then return end
  local ids, gone, lessened = redis.call('LPOP', prefix .. ':e', math.min(excess, TRIM_STEP)), {}, {}
  for index, found in ipairs(redis.call('HMGET', prefix .. ':m', unpack(ids))) do
    -- An id that has ended more than once is listed as often, which its record counts in the third byte.
    local id, packed = ids[index], lessened[ids[index]] or found or ''
    local state, again = string.byte(packed, 1), string.byte(packed, 3)
    if again == 0 and state >= DONE then gone[#gone + 1] = id
    elseif again and again > 0 then
      lessened[id] = string.sub(packed, 1, 2) .. string.char(again - 1) .. string.sub(packed, 4)
      redis.call('HSET', prefix .. ':m', id, lessened[id])
    end
  end
  if gone[1] then redis.call('HDEL', prefix .. ':m', unpack(gone)) end
end
