/**
 * The scripts that carry out the steps of a turn. Known to the server by their hashes; sent whole when the server has
 * forgotten one.
 */
import { createHash } from 'node:crypto'
import type { Argument, RedisClient } from './client.js'
import { isUnknownScript } from './errors.js'
import { type ScriptName, SOURCES } from './source.js'

export class Script {
  readonly #source: string
  readonly #hash: string

  constructor(source: string) {
    this.#source = source
    this.#hash = createHash('sha1').update(source).digest('hex')
  }

  /** Runs it on these keys. Nothing is changed if it rejects with an error of the server. */
  async run(client: RedisClient, keys: readonly string[], args: readonly Argument[]): Promise<unknown[]> {
    const rest = [keys.length, ...keys, ...args]
    try {
      return (await client.callBuffer('EVALSHA', this.#hash, ...rest)) as unknown[]
    } catch (error) {
      if (!isUnknownScript(error)) throw error
      return (await client.callBuffer('EVAL', this.#source, ...rest)) as unknown[]
    }
  }
}

export const scripts: Readonly<Record<ScriptName, Script>> = {
  enqueue: new Script(SOURCES.enqueue),
  consume: new Script(SOURCES.consume),
  administer: new Script(SOURCES.administer),
}

const SCRIPT_OF: Readonly<Record<string, ScriptName>> = {
  enqueue: 'enqueue',
  claim: 'consume',
  settle: 'consume',
  renew: 'consume',
  sweep: 'consume',
}

/** Which script has a verb. Only steps of one script can go in one call. */
export function scriptOf(verb: string): ScriptName {
  return SCRIPT_OF[verb] ?? 'administer'
}
