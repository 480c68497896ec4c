/**
 * What this backend uses of ioredis, so that clients of its versions 5 and 6, single or cluster, all fit.
 */
export interface RedisClient {
  /** `'ready'` when commands are taken, `'end'` when it is closed for good, … */
  readonly status: string
  readonly options: object
  /** The socket, while there is one. A cluster has none of its own. */
  readonly stream?: { readonly bytesRead?: number } | undefined
  /** Sends any command; replies that are strings come as buffers. */
  callBuffer(command: string, ...args: (string | number | Uint8Array)[]): Promise<unknown>
  subscribe(...channels: string[]): Promise<unknown>
  unsubscribe(...channels: string[]): Promise<unknown>
  duplicate(...overrides: never[]): RedisClient
  disconnect(reconnect?: boolean): void
  on(event: string, listener: (...args: unknown[]) => void): unknown
  off(event: string, listener: (...args: unknown[]) => void): unknown
  /** That of a cluster; a client of one server has none. */
  nodes?(role?: string): RedisClient[]
}

/** Sent to the server as they are; text as UTF-8. */
export type Argument = string | number | Buffer
