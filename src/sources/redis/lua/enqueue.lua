-- The verb of the script that stores messages.

verbs.enqueue = function(queue, take)
  local batch = admission().take_batch(take)
  local planned, refusing = admission().plan(queue, batch)
  if refusing then return refusing end
  local statuses, fresh = admission().admit(queue, batch, planned), 0
  for _, status in ipairs(statuses) do fresh = fresh + status end
  -- Where nothing is added, nothing is refused for want of memory: the first write is one that removes.
  if fresh == 0 then redis.call('HDEL', queue.key, '') end
  -- Nearly always all are new, which needs no list.
  return fresh == #statuses and fresh or statuses
end
