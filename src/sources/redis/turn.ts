/**
 * Gathers what is asked of one queue in one turn of the program into one call of the script, in order.
 */
import type { RequestToken } from '../../driver.js'
import { Eventual } from '../../eventual.js'
import { asBackendError, refusalIn } from './errors.js'
import type { Argument } from './script.js'

/** The most arguments and bytes of one call: what is more goes into the next. */
const MOST_ARGUMENTS = 20_000
const MOST_BYTES = 4 * 1024 * 1024

interface Step {
  readonly head: readonly Argument[]
  readonly args: readonly Argument[]
  readonly bytes: number
  readonly reply: Eventual<unknown>
  readonly decode: (reply: never) => unknown
}

export class Turns {
  #steps: Step[] = []
  readonly #run: (args: readonly Argument[]) => Promise<unknown[]>
  readonly #queueOf: (prefix: string) => string

  constructor(run: (args: readonly Argument[]) => Promise<unknown[]>, queueOf: (prefix: string) => string) {
    this.#run = run
    this.#queueOf = queueOf
  }

  /** Adds a step to the call of this turn. */
  ask<R, T>(verb: string, args: readonly Argument[], decode: (reply: R) => T, token?: RequestToken): Eventual<T> {
    const reply = new Eventual<T>()
    const head = token === undefined ? [verb, '', 0, 0] : [verb, token.session, token.seq, token.floor]
    const step = { head: [...head, args.length], args, bytes: sizeOf(args), reply, decode }
    if (this.#steps.push(step as unknown as Step) === 1) queueMicrotask(() => this.#flush())
    return reply
  }

  #flush(): void {
    const steps = this.#steps
    this.#steps = []
    for (const group of grouped(steps)) void this.#send(group)
  }

  async #send(steps: readonly Step[]): Promise<void> {
    const args: Argument[] = [steps.length]
    for (const step of steps) args.push(...step.head, ...step.args)
    let replies: unknown[]
    try {
      replies = await this.#run(args)
    } catch (error) {
      const reason = asBackendError(error)
      for (const { reply } of steps) reply.reject(reason)
      return
    }
    steps.forEach((step, index) => {
      const refused = refusalIn(replies[index], this.#queueOf)
      if (refused) step.reply.reject(refused)
      else step.reply.resolve(step.decode(replies[index] as never))
    })
  }
}

function* grouped(steps: readonly Step[]): Iterable<Step[]> {
  let group: Step[] = []
  let length = 0
  let bytes = 0
  for (const step of steps) {
    if (group.length > 0 && (length + step.args.length > MOST_ARGUMENTS || bytes + step.bytes > MOST_BYTES)) {
      yield group
      group = []
      length = 0
      bytes = 0
    }
    group.push(step)
    length += step.args.length
    bytes += step.bytes
  }
  yield group
}

function sizeOf(args: readonly Argument[]): number {
  let bytes = 0
  for (const each of args) if (each instanceof Uint8Array) bytes += each.byteLength
  return bytes
}
