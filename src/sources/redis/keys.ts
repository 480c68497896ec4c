/**
 * The names of keys: `millrace:{queue}` and what follows. The part in braces is the hash tag, by which a cluster keeps
 * all keys of a queue, or of all queues with one tag, in one slot.
 */

/** Names in which braces could end the tag, or that would be read as something else, are written out. */
function escaped(name: string): string {
  return name.replace(/[{}%]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
}

/** The prefix of all keys of a queue. */
export function prefixOf(queue: string, tag: string | undefined): string {
  return tag === undefined ? `millrace:{${escaped(queue)}}` : `millrace:{${escaped(tag)}}:${escaped(queue)}`
}

/** The channel on which its changes are told. */
export function channelOf(prefix: string): string {
  return `${prefix}:h`
}
