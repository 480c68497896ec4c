/**
 * The names of keys: `millrace:{queue}` and what follows. The part in braces is the hash tag, by which a cluster keeps
 * all keys of a queue, or of all queues with one tag, in one slot. docs/redis.md says what each key holds.
 */

/** The settings and counters of a queue come first: the scripts make the other names from it. */
const SUFFIXES = ['q', 'm', 'p', 'r', 'o', 'd', 'c', 't', 'x', 'e']

/** Where queues lie: keys begin with `keyPrefix`, and all queues that name the same `hashTag` share a slot. */
export interface KeySpace {
  readonly keyPrefix: string
  readonly hashTag: string | undefined
}

/** Names in which braces could end the tag, or that would be read as something else, are written out. */
function escaped(name: string): string {
  return name.replace(/[{}%]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
}

/** The prefix of all keys of a queue. */
export function prefixOf({ keyPrefix, hashTag }: KeySpace, queue: string): string {
  const name = hashTag === undefined ? `{${escaped(queue)}}` : `{${escaped(hashTag)}}:${escaped(queue)}`
  return `${keyPrefix}millrace:${name}`
}

/** The queue of a prefix. */
export function queueIn({ keyPrefix, hashTag }: KeySpace, prefix: string): string {
  const name = prefix.slice(`${keyPrefix}millrace:`.length)
  const shown = hashTag === undefined ? name.slice(1, -1) : name.slice(`{${escaped(hashTag)}}:`.length)
  return shown.replace(/%(7B|7D|25)/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)))
}

/** All keys of a queue but those of its callers' answers. */
export function keysOf(prefix: string): string[] {
  return SUFFIXES.map((suffix) => `${prefix}:${suffix}`)
}

/** Where the answers to one caller are remembered. */
export function answersKeyOf(prefix: string, session: string): string {
  return `${prefix}:a:${session}`
}

/** The channel on which its changes are told. */
export function channelOf(prefix: string): string {
  return `${prefix}:h`
}

/** What decides on the slot of a key: the first part in braces, if it is not empty, else all of it. */
export function tagOf(key: string): string {
  return /\{([^}]+)\}/.exec(key)?.[1] ?? key
}
