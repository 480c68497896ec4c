import { createSocket } from 'node:dgram'
import { createServer } from 'node:net'

const HOST = '127.0.0.1'
/** Below where Linux picks ports for outgoing connections, so that no client of anybody takes one meanwhile. */
const LOWEST = 10_000
const HIGHEST = 32_767
const ATTEMPTS = 200

/** A TCP port of 127.0.0.1 that no other test gets before it is released or its process ends. */
export interface PortReservation {
  readonly port: number
  /** Fulfils when others may have the port. May be called again. */
  release(): Promise<void>
}

/**
 * Reserves a free TCP port of 127.0.0.1, among all processes that ask here. It is free to be listened on, again and
 * again: a killed server can come back to it.
 *
 * @param offsets Further ports to reserve along, told by their distance: a node of Redis Cluster wants `[10_000]`.
 */
export async function reservePort(offsets: readonly number[] = []): Promise<PortReservation> {
  const span = HIGHEST - LOWEST - Math.max(0, ...offsets)
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const port = LOWEST + Math.floor(Math.random() * (span + 1))
    const locks = await lockAll([port, ...offsets.map((offset) => port + offset)])
    if (locks !== undefined) return { port, release: () => unlockAll(locks) }
  }
  throw new Error(`no free port among ${ATTEMPTS} tried`)
}

type Lock = () => Promise<void>

async function lockAll(ports: readonly number[]): Promise<Lock[] | undefined> {
  const locks: Lock[] = []
  for (const port of ports) {
    const lock = await lockPort(port)
    if (lock !== undefined) locks.push(lock)
    if (lock !== undefined && (await isFree(port))) continue
    await unlockAll(locks)
    return undefined
  }
  return locks
}

async function unlockAll(locks: readonly Lock[]): Promise<void> {
  await Promise.all(locks.map((unlock) => unlock()))
}

/**
 * The lock on a TCP port is the UDP port of the same number: one process at a time has it, it is not in the server's
 * way, and however the process ends, the lock goes with it. A lock file would stay.
 */
function lockPort(port: number): Promise<Lock | undefined> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4')
    socket.once('error', () => resolve(undefined))
    socket.bind({ port, address: HOST, exclusive: true }, () => {
      socket.unref()
      let released: Promise<void> | undefined
      resolve(() => {
        released ??= new Promise((done) => socket.close(done))
        return released
      })
    })
  })
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ port, host: HOST, exclusive: true }, () => server.close(() => resolve(true)))
  })
}
