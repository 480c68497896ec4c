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

interface Lane {
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

  /** What is owed, by lanes: in a cluster one node may be silent while the others are busy. */
  readonly #lanes = new Map<string, Lane>()
  /** Who waits for a connection that is being made. */
  readonly #waiting = new Set<(error: Error) => void>()
  #patienceMs = PATIENCE_MS
  #watch: NodeJS.Timeout | undefined

  constructor(target: Target) {
    this.#target = target
  }

  /** Sends commands when the connection is ready. Rejects when it cannot be made, or is silent or broken meanwhile. */
  async use<T>(send: (client: RedisClient) => Promise<T>, lane = ''): Promise<T> {
    const client = this.#isUsable() ? (this.#client as RedisClient) : await this.ready()
    return this.#watched(send(client), lane)
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
    this.#giveUp(new ClosedError('the redis backend'))
    clearTimeout(this.#watch)
    this.#watch = undefined
  }

  #isUsable(): boolean {
    return this.#client?.status === 'ready' && this.#checked !== undefined && this.#ready === undefined
  }

  async #connect(): Promise<RedisClient> {
    const client = this.#open()
    if (client.status !== 'ready') await this.#becomesReady(client)
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

  #watched<T>(reply: Promise<T>, lane = ''): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#owe(lane, reject)
      reply.then(
        (value) => {
          this.#patienceMs = PATIENCE_MS
          this.#paid(lane, reject)
          resolve(value)
        },
        (error) => {
          this.#paid(lane, reject)
          reject(error)
        },
      )
    })
  }

  #owe(name: string, giveUp: (error: Error) => void): void {
    let lane = this.#lanes.get(name)
    if (lane === undefined) {
      lane = { quietSince: performance.now(), owed: new Set() }
      this.#lanes.set(name, lane)
    }
    lane.owed.add(giveUp)
    // It is left running when all is answered, and looks then whether anything is owed: far cheaper than one for each.
    if (this.#watch === undefined) this.#look(this.#patienceMs)
  }

  #paid(name: string, giveUp: (error: Error) => void): void {
    const lane = this.#lanes.get(name)
    if (!lane?.owed.delete(giveUp)) return
    lane.quietSince = performance.now()
    if (lane.owed.size === 0) this.#lanes.delete(name)
  }

  #look(inMs: number): void {
    this.#watch = setTimeout(() => {
      this.#watch = undefined
      if (this.#lanes.size === 0) return
      const quietSince = Math.min(...[...this.#lanes.values()].map((lane) => lane.quietSince))
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
    const owed = [...this.#waiting, ...[...this.#lanes.values()].flatMap((lane) => [...lane.owed])]
    this.#waiting.clear()
    this.#lanes.clear()
    for (const giveUp of owed) giveUp(error)
  }
}
