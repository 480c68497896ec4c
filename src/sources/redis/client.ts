/**
 * What this backend uses of ioredis, so that clients of its versions 5 and 6, single or cluster, all fit.
 */
export interface RedisClient {
  /** `'wait'` before it is connected, `'ready'`, `'end'` when it is closed for good, … */
  readonly status: string
  /** Sends any command; replies of strings come as buffers. */
  callBuffer(command: string, ...args: (string | number | Uint8Array)[]): Promise<unknown>
  subscribe(...channels: string[]): Promise<unknown>
  unsubscribe(...channels: string[]): Promise<unknown>
  duplicate(override?: Record<string, unknown>): RedisClient
  disconnect(reconnect?: boolean): void
  on(event: string, listener: (...args: never[]) => void): unknown
  off(event: string, listener: (...args: never[]) => void): unknown
  /** That of a cluster; a single client has none. */
  nodes?(role?: string): RedisClient[]
}
