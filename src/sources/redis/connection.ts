/**
 * The connection for commands of a backend, made at first use.
 *
 * A network can go away without a word, and then a command would wait for ever. So a connection that has been silent
 * for long while it owed an answer is cut and made anew, and all that it owed fails as unavailable: the engine asks
 * again, with the same tokens.
 */
import { BackendUnavailableError, ClosedError } from '../../errors.js'
import type { RedisClient } from './client.js'
import { asBackendError } from './errors.js'
import { checkServer } from './server-check.js'
import type { Target } from './target.js'

/** How long a connection may owe an answer. Doubled each time it is cut in a row, as the server may be slow. */
const PATIENCE_MS = 2_000
const LONGEST_PATIENCE_MS = 30_000
/** How long a command waits for a connection that is being made. */
const READY_MS = 5_000

/** What one node owes. */
interface Line {
  quietSince: number
  /** How to give up each reply. */
  readonly owed: Set<(error: Error) => void>
}

export class Connection {
  readonly #target: Target
  #client: RedisClient | undefined
  #ready: Promise<RedisClient> | undefined
  #checked: Promise<void> | undefined
  #lastError: unknown
  /** What the server refused while the connection was made: its database, for one. The client would go on in another. */
  #refusal: unknown

  /** What is owed, by lines: in a cluster one node may be silent while the others are busy. */
  readonly #lines = new Map<string, Line>()
  /** Who waits for a connection that is being made. */
  readonly #waiting = new Set<(error: Error) => void>()
  #patienceMs = PATIENCE_MS
  #watch: NodeJS.Timeout | undefined

  constructor(target: Target) {
    this.#target = target
  }

  /** Sends commands when the connection is ready. Rejects when it cannot be made, or is silent or broken meanwhile. */
  async use<T>(send: (client: RedisClient) => Promise<T>, line = ''): Promise<T> {
    const client = this.#isUsable() ? (this.#client as RedisClient) : await this.ready()
    return this.#watched(send(client), line)
  }

  /** The client once it takes commands. */
  ready(): Promise<RedisClient> {
    if (this.#ready === undefined) {
      const ready = this.#connect()
      const forget = () => {
        if (this.#ready === ready) this.#ready = undefined
      }
      this.#ready = ready
      ready.then(forget, forget)
    }
    return this.#ready
  }

  close(): void {
    this.#client?.disconnect()
    this.#client = undefined
    this.#ready = undefined
    this.#checked = undefined
    this.#giveUp(new ClosedError('the redis backend'))
    clearTimeout(this.#watch)
    this.#watch = undefined
  }

  #isUsable(): boolean {
    const isReady = this.#client?.status === 'ready' && this.#ready === undefined
    return isReady && this.#checked !== undefined && this.#refusal === undefined
  }

  async #connect(): Promise<RedisClient> {
    const client = this.#open()
    if (client.status !== 'ready') await this.#becomesReady(client)
    if (this.#refusal !== undefined) throw asBackendError(this.#refusal)
    this.#checked ??= this.#watched(checkServer(client))
    try {
      await this.#checked
    } catch (error) {
      this.#checked = undefined
      throw error
    }
    return client
  }

  #open(): RedisClient {
    if (this.#client !== undefined && this.#client.status !== 'end') return this.#client
    const client = this.#target.commands()
    // Told by the commands that fail; without a listener the client would write it to the console.
    client.on('error', (error) => {
      this.#lastError = error
      if (isReply(error)) this.#refusal = error
    })
    client.on('connect', () => {
      this.#refusal = undefined
    })
    this.#client = client
    return client
  }

  #becomesReady(client: RedisClient): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (error: unknown) => {
        end()
        reject(asBackendError(error))
      }
      const onReady = () => {
        end()
        this.#lastError = undefined
        resolve()
      }
      const onClose = () => fail(this.#lastError ?? new Error('the connection was closed'))
      const timer = setTimeout(() => {
        client.disconnect(true)
        fail(new Error(`no connection within ${READY_MS} ms`))
      }, READY_MS)
      // A client that is told to disconnect while it waits to connect again says nothing.
      const giveUp = (error: Error) => {
        end()
        reject(error)
      }
      const end = () => {
        clearTimeout(timer)
        this.#waiting.delete(giveUp)
        client.off('ready', onReady)
        client.off('close', onClose)
        client.off('end', onClose)
      }
      this.#waiting.add(giveUp)
      client.on('ready', onReady)
      client.on('close', onClose)
      client.on('end', onClose)
    })
  }

  #watched<T>(reply: Promise<T>, line = ''): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#owe(line, reject)
      reply.then(
        (value) => {
          this.#patienceMs = PATIENCE_MS
          this.#paid(line, reject)
          resolve(value)
        },
        (error) => {
          this.#paid(line, reject)
          reject(error)
        },
      )
    })
  }

  #owe(name: string, giveUp: (error: Error) => void): void {
    let line = this.#lines.get(name)
    if (line === undefined) {
      line = { quietSince: performance.now(), owed: new Set() }
      this.#lines.set(name, line)
    }
    line.owed.add(giveUp)
    // It is left running when all is answered, and looks then whether anything is owed: far cheaper than one for each.
    if (this.#watch === undefined) this.#look(this.#patienceMs)
  }

  #paid(name: string, giveUp: (error: Error) => void): void {
    const line = this.#lines.get(name)
    if (!line?.owed.delete(giveUp)) return
    line.quietSince = performance.now()
    if (line.owed.size === 0) this.#lines.delete(name)
  }

  #look(inMs: number): void {
    this.#watch = setTimeout(() => {
      this.#watch = undefined
      if (this.#lines.size === 0) return
      const quietSince = Math.min(...[...this.#lines.values()].map((line) => line.quietSince))
      const leftMs = quietSince + this.#patienceMs - performance.now()
      if (leftMs <= 0) this.#cut()
      else this.#look(leftMs)
    }, inMs)
    this.#watch.unref()
  }

  #cut(): void {
    const error = new BackendUnavailableError(`Redis did not answer for ${this.#patienceMs} ms`)
    this.#patienceMs = Math.min(2 * this.#patienceMs, LONGEST_PATIENCE_MS)
    this.#client?.disconnect(true)
    this.#giveUp(error)
  }

  #giveUp(error: Error): void {
    const owed = [...this.#waiting, ...[...this.#lines.values()].flatMap((line) => [...line.owed])]
    this.#waiting.clear()
    this.#lines.clear()
    for (const giveUp of owed) giveUp(error)
  }
}

function isReply(error: unknown): boolean {
  return error instanceof Error && error.name === 'ReplyError'
}
