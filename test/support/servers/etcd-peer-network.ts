import { connect, createServer, type Server, type Socket } from 'node:net'
import { reservePort } from './free-ports.js'
import { type Direction, type LineState, ProxiedConnection } from './proxied-connection.js'

const HOST = '127.0.0.1'
/** Each request of a member to another says whose it is. */
const SENDER = /^x-server-from: ([0-9a-f]+)\r$/im

type Lines = Readonly<Record<Direction, LineState>>

interface Link {
  /** The sender's id in hexadecimal; undefined for probes, which say nothing. */
  readonly from: string | undefined
  readonly to: string
  readonly lines: Lines
  readonly connection: ProxiedConnection
}

/** The network between the members of a cluster, in which single ones can be cut off. */
export class EtcdPeerNetwork {
  readonly #doors: { readonly server: Server; readonly release: () => Promise<void> }[] = []
  readonly #links = new Set<Link>()
  readonly #cut = new Set<string>()
  readonly #ids = new Map<string, string>()

  /** Opens a door to a member, by its name, and fulfils with the port at which the others are to reach it. */
  async doorTo(name: string, peerPort: number): Promise<number> {
    const { port, release } = await reservePort()
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.#take(client, name, peerPort))
    this.#doors.push({ server, release })
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(port, HOST, resolve)
    })
    return port
  }

  /** Tells which member, by its name, an id in hexadecimal stands for: {@link cut} tells senders by it. */
  introduce(name: string, id: string): void {
    this.#ids.set(id, name)
  }

  /** From now on nothing passes between this member and the others, and nobody is told: the packets are lost. */
  cut(name: string): void {
    this.#cut.add(name)
    this.#apply()
  }

  /** Ends all cuts. What went silent is reset, so that members connect anew at once. */
  mend(): void {
    this.#cut.clear()
    for (const link of [...this.#links]) {
      if (link.lines.requests.held) link.connection.reset()
    }
  }

  async stop(): Promise<void> {
    for (const { server, release } of this.#doors) {
      server.close()
      await release()
    }
    for (const { connection } of [...this.#links]) connection.reset()
  }

  #take(client: Socket, to: string, peerPort: number): void {
    client.on('error', () => {})
    client.once('data', (first) => {
      const from = SENDER.exec(first.toString('latin1'))?.[1]
      const lines: Lines = { requests: { held: false, delayMs: 0 }, replies: { held: false, delayMs: 0 } }
      const server = connect({ port: peerPort, host: HOST, allowHalfOpen: true, noDelay: true })
      const connection = new ProxiedConnection({ client, server, lines, tap: undefined })
      const link: Link = { from, to, lines, connection }
      this.#links.add(link)
      connection.onClosed(() => this.#links.delete(link))
      this.#apply()
      client.emit('data', first)
    })
  }

  #apply(): void {
    for (const link of this.#links) {
      const held = this.#isCut(link)
      for (const direction of [link.lines.requests, link.lines.replies]) direction.held = held
      link.connection.pump()
    }
  }

  #isCut({ from, to }: Link): boolean {
    if (this.#cut.size === 0) return false
    const sender = from === undefined ? undefined : this.#ids.get(from)
    return this.#cut.has(to) || (sender !== undefined && this.#cut.has(sender))
  }
}
