/**
 * The connection for commands of a backend, made at first use.
 *
 * A network can go away without a word, and then a command would wait for ever. So a connection that has been silent
 * for long while it owed an answer is cut and made anew, and all that it owed fails as unavailable: the engine asks
 * again, with the same tokens.
 */
import { ClosedError } from '../../errors.js'
import type { RedisClient } from './client.js'
import { asBackendError } from './errors.js'
import { Patience } from './patience.js'
import { checkServer } from './server-check.js'
import type { Target } from './target.js'

/** How long a command waits for a connection that is being made. */
const READY_MS = 5_000

export class Connection {
  readonly #target: Target
  #client: RedisClient | undefined
  #ready: Promise<RedisClient> | undefined
  #checked: Promise<void> | undefined
  #lastError: unknown
  /** What the server refused while the connection was made: its database, say. The client would go on in another. */
  #refusal: unknown

  /** Who waits for a connection that is being made. */
  readonly #waiting = new Set<(error: Error) => void>()
  readonly #patience = new Patience(
    () => this.#client,
    () => this.#client?.disconnect(true),
  )

  constructor(target: Target) {
    this.#target = target
  }

  /** Sends commands when the connection is ready. Rejects when it cannot be made, or is silent or broken meanwhile. */
  async use<T>(send: (client: RedisClient) => Promise<T>, line: string, bytes: number): Promise<T> {
    const client = this.#isUsable() ? (this.#client as RedisClient) : await this.ready()
    return this.#patience.follow(send(client), line, bytes)
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
    this.#patience.stop()
  }

  #isUsable(): boolean {
    const isReady = this.#client?.status === 'ready' && this.#ready === undefined
    return isReady && this.#checked !== undefined && this.#refusal === undefined
  }

  async #connect(): Promise<RedisClient> {
    const client = this.#open()
    if (client.status !== 'ready') await this.#becomesReady(client)
    if (this.#refusal !== undefined) throw asBackendError(this.#refusal)
    this.#checked ??= this.#patience.follow(checkServer(client))
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
    client.on('ready', () => {
      this.#lastError = undefined
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

  #giveUp(error: Error): void {
    const waiting = [...this.#waiting]
    this.#waiting.clear()
    for (const giveUp of waiting) giveUp(error)
    this.#patience.giveUp(error)
  }
}

function isReply(error: unknown): boolean {
  return error instanceof Error && error.name === 'ReplyError'
}
