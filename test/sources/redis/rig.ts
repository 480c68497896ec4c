import { connect, createServer, type Socket } from 'node:net'
import type { Backend } from 'millrace'
import { type RedisBackendOptions, type RedisTarget, redisBackend } from 'millrace/redis'
import { QueueRig } from '../../support/rig.js'
import { nameOf, type RespCommand, RespExchange } from '../../support/servers/resp-exchange.js'
import { startTcpProxy, type TcpProxy } from '../../support/servers/tcp-proxy.js'

const SCRIPTS = ['eval', 'evalsha']

/** Whether it runs one of the scripts. */
export function isScript(command: RespCommand): boolean {
  return SCRIPTS.includes(nameOf(command))
}

/** Makes backends besides. */
export class Rig extends QueueRig {
  backend(target: RedisTarget, options: RedisBackendOptions = {}): Backend {
    return redisBackend(target, options)
  }
}

/** A relay in front of a server whose connections can go silent one by one, and whose answers can be false. */
export interface Relay {
  readonly url: string
  readonly port: number
  /** How many connections have been made so far. */
  readonly made: number
  /** From now on nothing passes in those connections that are open and fit, in either direction. New ones are well. */
  deafen(fits?: (connection: RelayedConnection) => boolean): number
  /** Resets those connections that are open and fit. */
  reset(fits?: (connection: RelayedConnection) => boolean): number
  /** How many of the connections that are open and not deaf have subscribed. */
  readonly subscribers: number
  stop(): Promise<void>
}

export interface RelayedConnection {
  readonly number: number
  readonly subscribes: boolean
}

interface Relayed extends RelayedConnection {
  subscribes: boolean
  isDeaf: boolean
  readonly sockets: readonly [Socket, Socket]
}

/** A half-open connection is what a firewall leaves that has forgotten it: nobody is told. */
export async function startRelay(targetPort: number): Promise<Relay> {
  const open = new Set<Relayed>()
  let made = 0
  const listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const server = connect({ port: targetPort, host: '127.0.0.1', noDelay: true })
    made += 1
    const connection: Relayed = { number: made, subscribes: false, isDeaf: false, sockets: [client, server] }
    open.add(connection)
    const pass = (from: Socket, to: Socket) => {
      from.on('data', (chunk) => {
        if (connection.isDeaf) return
        if (from === client && /subscribe/i.test(chunk.toString('latin1'))) connection.subscribes = true
        to.write(chunk)
      })
      from.on('end', () => !connection.isDeaf && to.end())
      from.on('error', () => to.destroy())
      from.on('close', () => {
        open.delete(connection)
        to.destroy()
      })
    }
    pass(client, server)
    pass(server, client)
  })
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const { port } = listener.address() as { port: number }
  const chosen = (fits: (connection: RelayedConnection) => boolean) => [...open].filter(fits)
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    get made() {
      return made
    },
    get subscribers() {
      return [...open].filter(({ subscribes, isDeaf }) => subscribes && !isDeaf).length
    },
    deafen: (fits = () => true) => chosen(fits).map((each) => ((each as Relayed).isDeaf = true)).length,
    reset: (fits = () => true) =>
      chosen(fits).map((each) => (each as Relayed).sockets.map((socket) => socket.resetAndDestroy())).length,
    stop: async () => {
      listener.close()
      for (const { sockets } of open) for (const socket of sockets) socket.destroy()
    },
  }
}

/** Says something else than the server did. */
export interface Liar extends TcpProxy {
  readonly url: string
  /** The next so many replies to scripts are this error, though the server has run them. */
  lie(error: string, times: number): void
  /** How many lies are left. */
  readonly left: number
}

export async function startLiar(targetPort: number): Promise<Liar> {
  const lies: string[] = []
  const tap = () => {
    const exchange = new RespExchange<string | undefined>((command) => (isScript(command) ? lies.shift() : undefined))
    return {
      requests: (chunk: Buffer) => exchange.requests(chunk),
      replies: (chunk: Buffer) => {
        const passed: Buffer[] = []
        for (const { bytes, to, isLast } of exchange.replies(chunk)) {
          if (to === undefined) passed.push(bytes)
          else if (isLast) passed.push(Buffer.from(`-${to}\r\n`))
        }
        return { passed, cut: false }
      },
    }
  }
  const proxy = await startTcpProxy(targetPort, tap)
  return Object.assign(proxy, {
    url: `redis://127.0.0.1:${proxy.port}`,
    lie: (error: string, times: number) => void lies.push(...Array.from({ length: times }, () => error)),
    get left() {
      return lies.length
    },
  })
}
