/**
 * The script that carries out the steps of a turn, made of one file per verb. Known to the server by its hash; sent
 * whole when the server has forgotten it.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { RedisClient } from './client.js'
import { isUnknownScript } from './errors.js'

const FILES = ['store', 'enqueue', 'claim', 'settle', 'administer', 'run']

const SOURCE = FILES.map((name) => readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), 'utf8')).join('\n')
const HASH = createHash('sha1').update(SOURCE).digest('hex')

export type Argument = string | number | Uint8Array

/** Runs the script on the keys of one prefix. */
export async function runScript(client: RedisClient, prefix: string, args: readonly Argument[]): Promise<unknown[]> {
  try {
    return (await client.callBuffer('EVALSHA', HASH, 1, prefix, ...args)) as unknown[]
  } catch (error) {
    if (!isUnknownScript(error)) throw error
    return (await client.callBuffer('EVAL', SOURCE, 1, prefix, ...args)) as unknown[]
  }
}
