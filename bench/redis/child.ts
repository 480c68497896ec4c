/** A consumer in a process of its own, which `redis-consumer.ts` is. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Address, Product } from './store.js'

export type Request =
  | { readonly kind: 'open'; readonly queue: string }
  /** `each` asks to be told of each message, as soon as it is handled. */
  | { readonly kind: 'consume'; readonly size: number; readonly each: boolean }
  | { readonly kind: 'stop' }
  | { readonly kind: 'memory' }

export type Answer =
  | { readonly kind: 'ready' | 'opened' }
  | { readonly kind: 'progress'; readonly handled: number; readonly at: number }
  | { readonly kind: 'stopped'; readonly at: number }
  | { readonly kind: 'memory'; readonly rss: number; readonly heap: number }

type AnswerOf<K extends Answer['kind']> = Extract<Answer, { readonly kind: K }>

const SCRIPT = fileURLToPath(new URL('../redis-consumer.ts', import.meta.url))

export class ChildConsumer {
  /** How many it has told to have handled since it opened a queue. */
  handled = 0
  /** Called with the instant at which the last of them was handled. */
  onProgress: (at: number) => void = () => {}
  readonly #process: ChildProcess

  static async start({ name }: Product, { host, port }: Address): Promise<ChildConsumer> {
    const child = new ChildConsumer(fork(SCRIPT, [name, host, `${port}`]))
    await child.#answer('ready')
    return child
  }

  private constructor(process: ChildProcess) {
    this.#process = process
    process.on('message', (answer: Answer) => {
      if (answer.kind !== 'progress') return
      this.handled = answer.handled
      this.onProgress(answer.at)
    })
  }

  async open(queue: string): Promise<void> {
    this.handled = 0
    this.#ask({ kind: 'open', queue })
    await this.#answer('opened')
  }

  consume(size: number, each = false): void {
    this.#ask({ kind: 'consume', size, each })
  }

  /** Answers when the last message was handled. */
  async stop(): Promise<number> {
    this.#ask({ kind: 'stop' })
    return (await this.#answer('stopped')).at
  }

  async memory(): Promise<AnswerOf<'memory'>> {
    this.#ask({ kind: 'memory' })
    return this.#answer('memory')
  }

  async end(): Promise<void> {
    if (this.#process.connected) this.#process.disconnect()
    if (this.#process.exitCode === null) await once(this.#process, 'exit')
  }

  #ask(request: Request): void {
    this.#process.send(request)
  }

  #answer<K extends Answer['kind']>(kind: K): Promise<AnswerOf<K>> {
    return new Promise((resolve, reject) => {
      const done = () => {
        this.#process.off('message', hear)
        this.#process.off('exit', fail)
      }
      const hear = (answer: Answer) => {
        if (answer.kind !== kind) return
        done()
        resolve(answer as AnswerOf<K>)
      }
      const fail = () => {
        done()
        reject(new Error('the consumer process ended'))
      }
      this.#process.on('message', hear)
      this.#process.on('exit', fail)
    })
  }
}
