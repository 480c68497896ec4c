-- What all files of a script share.

local P = string.sub(KEYS[1], 1, -3)
-- What each verb does, what is kept of its answer if not all, and how that becomes an answer again.
local verbs, remembered, recalled = {}, {}, {}

-- A module whose functions few calls need is made by those that do. Making a function costs more than most of its uses.
local function lazy(make)
  local made
  return function()
    made = made or make()
    return made
  end
end
