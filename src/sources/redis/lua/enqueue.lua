-- The verb of the script that stores messages.

verbs.enqueue = function(queue, take)
  local batch = admission().take_batch(take)
  local planned, refusing = admission().plan(queue, batch)
  if refusing then return refusing end
  return admission().admit(queue, batch, planned)
end
