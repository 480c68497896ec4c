import { connect, createServer, type Socket } from 'node:net'

const HOST = '127.0.0.1'

/** A relay in front of a server, whose connections can go silent one by one. */
export interface Relay {
  readonly port: number
  /** How many connections have been made so far. */
  readonly made: number
  /** From now on nothing passes in those connections that are open and fit, in either direction. New ones are well. */
  deafen(fits?: (connection: RelayedConnection) => boolean): number
  /** Resets those connections that are open and fit. */
  reset(fits?: (connection: RelayedConnection) => boolean): number
  /** How many of the connections that are open and not deaf have subscribed to a channel of Redis. */
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
    const server = connect({ port: targetPort, host: HOST, noDelay: true })
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
  await new Promise<void>((resolve) => listener.listen(0, HOST, resolve))
  const { port } = listener.address() as { port: number }
  const chosen = (fits: (connection: RelayedConnection) => boolean) => [...open].filter(fits)
  return {
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
