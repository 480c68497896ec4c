import { connect, createServer, type Socket } from 'node:net'
import { reservePort } from './free-ports.js'
import { type Direction, type LineState, ProxiedConnection, type Tap } from './proxied-connection.js'

const HOST = '127.0.0.1'
const BOTH: readonly Direction[] = ['requests', 'replies']

/** A network between clients and one server of this machine, to be disturbed. */
export interface TcpProxy {
  readonly port: number
  /** How many connections are open now. */
  readonly connections: number
  /** From now on each chunk takes so many milliseconds more. Order is kept; 0 ends it. */
  delay(delayMs: number, direction?: Direction): void
  /**
   * Passes nothing on, not even that a side has hung up, and takes new connections without answering them: a network
   * that has gone silent. What is sent meanwhile arrives after `resume`, as TCP would repeat it.
   */
  hold(direction?: Direction): void
  resume(direction?: Direction): void
  /** Resets all connections, to both sides, and what is on its way in them is lost. */
  resetAll(): void
  /** Refuses new connections, as when nobody listens. Those that are open stay. */
  refuse(): Promise<void>
  /** Takes new connections again. */
  accept(): Promise<void>
  /** Resets all connections and listens no more. */
  stop(): Promise<void>
}

/**
 * Starts a proxy in front of a port of 127.0.0.1. It knows nothing of what passes through it.
 *
 * @param tapFor Sees what passes through one connection, and may cut it.
 */
export async function startTcpProxy(targetPort: number, tapFor?: () => Tap): Promise<TcpProxy> {
  // Refusing means not to listen, and nobody else may take the port meanwhile.
  const { port, release } = await reservePort()
  const open = new Set<ProxiedConnection>()
  const lines: Readonly<Record<Direction, LineState>> = {
    requests: { held: false, delayMs: 0 },
    replies: { held: false, delayMs: 0 },
  }
  const take = (client: Socket) => {
    const server = connect({ port: targetPort, host: HOST, allowHalfOpen: true, noDelay: true })
    const connection = new ProxiedConnection({ client, server, lines, tap: tapFor?.() })
    open.add(connection)
    connection.onClosed(() => open.delete(connection))
  }
  const listener = createServer({ allowHalfOpen: true, noDelay: true }, take)
  const pumpAll = () => {
    for (const connection of open) connection.pump()
  }
  const setHeld = (held: boolean, direction?: Direction) => {
    for (const each of direction ? [direction] : BOTH) lines[each].held = held
    pumpAll()
  }
  const resetAll = () => {
    for (const connection of [...open]) connection.reset()
  }
  const accept = () =>
    new Promise<void>((resolve, reject) => {
      if (listener.listening) return resolve()
      listener.once('error', reject)
      listener.listen(port, HOST, () => {
        listener.off('error', reject)
        resolve()
      })
    })
  // The callback of `close` would wait for the connections to end; the port is refused at once.
  const refuse = async () => {
    if (listener.listening) listener.close()
  }
  await accept()
  return {
    port,
    get connections() {
      return open.size
    },
    delay: (delayMs, direction = 'replies') => {
      lines[direction].delayMs = delayMs
    },
    hold: (direction) => setHeld(true, direction),
    resume: (direction) => setHeld(false, direction),
    resetAll,
    refuse,
    accept,
    stop: async () => {
      await refuse()
      resetAll()
      await release()
    },
  }
}
