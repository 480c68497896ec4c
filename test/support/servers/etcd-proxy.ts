import { type ClientHttp2Session, connect, createServer, type ServerHttp2Session } from 'node:http2'
import { type Call, passStream, passUnary, type Reply } from './etcd-proxied-call.js'
import { reservePort } from './free-ports.js'
import { type ReplyDrop, type ReplyDropOptions, ReplyDrops, type SentCommand } from './reply-drops.js'

const HOST = '127.0.0.1'
const STREAMS = ['Watch/Watch', 'Lease/LeaseKeepAlive', 'Maintenance/Snapshot']

/** A call as the proxy saw it come from a client. */
export interface SeenCall {
  /** As in `KV/Txn`. */
  readonly method: string
  /** The message of a unary call; empty for streams. */
  readonly request: Buffer
  /** By `performance.now()`. */
  readonly at: number
  /** Counts connections from 1. */
  readonly connection: number
  /** What the server said, once it has; of unary calls that went well. */
  reply: Buffer | undefined
  /** Whether the call is still under way. */
  open: boolean
}

type CallFilter = (call: SeenCall) => boolean

/** How the client of a lost reply learns that it is lost. */
type Loss =
  /** Its connection is cut, and with it whatever else is under way there. */
  | 'cut'
  /** It is told UNAVAILABLE, as by a member that has lost its leader. */
  | 'refusal'
  /** It never does. */
  | 'silence'

const LOSSES: readonly Loss[] = ['cut', 'refusal', 'silence']
const UNAVAILABLE = { code: 14, message: 'etcdserver: request timed out' }

/** Says something else than the server. */
interface Lie {
  readonly match: CallFilter
  readonly code: number
  readonly message: string
  /** Whether the server has run the call all the same. */
  readonly ran: boolean
  times: number
}

/** A proxy that knows the calls of etcd. */
export interface EtcdProxy {
  readonly port: number
  readonly url: string
  /** How many connections are open now. */
  readonly connections: number
  /** All calls seen since the start, or since `forget`. */
  readonly calls: readonly SeenCall[]
  /** How many of them there are, or of them that match. */
  count(match?: CallFilter): number
  forget(): void
  /** How many messages the clients have sent in streams of a method: keepalives, watches asked for. */
  messagesIn(method: string): number
  /** Lets the server run a call and then loses its reply. */
  dropReply(options?: ReplyDropOptions<SeenCall> & { readonly loss?: Loss }): ReplyDrop<SeenCall>
  /** The next so many calls that match are answered so. */
  lie(lie: {
    readonly code: number
    readonly message: string
    readonly times?: number
    readonly match?: CallFilter
    readonly ran?: boolean
  }): { readonly left: number; end(): void }
  /** Resets all connections of clients. */
  resetAll(): void
  stop(): Promise<void>
}

/** Matches calls by method. */
export function ofMethod(...methods: readonly string[]): CallFilter {
  return ({ method }) => methods.includes(method)
}

/**
 * Starts a proxy in front of an etcd member, to lose single replies, to tell lies, and to see and count calls.
 *
 * @example
 * const proxy = await startEtcdProxy(server.port)
 * const { dropped } = proxy.dropReply({ match: ofMethod('KV/Txn') })
 * await dropped // The transaction has run, and its caller will not hear of it.
 */
export async function startEtcdProxy(targetPort: number): Promise<EtcdProxy> {
  const { port, release } = await reservePort()
  const calls: SeenCall[] = []
  const sessions = new Set<ServerHttp2Session>()
  const drops = new Map(LOSSES.map((loss) => [loss, new ReplyDrops<SeenCall>()]))
  const lies = new Set<Lie>()
  const messages = new Map<string, number>()
  let connections = 0

  const open = (call: Call): SeenCall => {
    const seen = { ...call, at: performance.now(), reply: undefined, open: true }
    calls.push(seen)
    return seen
  }
  const take = (session: ServerHttp2Session) => {
    connections += 1
    const connection = connections
    sessions.add(session)
    const upstream = connect(`http://${HOST}:${targetPort}`)
    joinLives(session, upstream, () => sessions.delete(session))
    session.on('stream', (stream, headers) => {
      const method = String(headers[':path']).replace('/etcdserverpb.', '')
      const end = { stream, headers, upstream }
      if (STREAMS.includes(method)) {
        const seen = open({ method, request: Buffer.alloc(0), connection })
        passStream(end, {
          onMessage: () => messages.set(method, (messages.get(method) ?? 0) + 1),
          onClose: () => {
            seen.open = false
          },
        })
        return
      }
      passUnary(end, (request) => {
        const seen = open({ method, request, connection })
        return answering(seen, session)
      })
    })
  }

  /** What becomes of a call: whether the server has it, and what its client hears. */
  const answering = (seen: SeenCall, session: ServerHttp2Session) => {
    const sent = LOSSES.map((loss) => [loss, drops.get(loss)?.send(seen)] as const)
    const lie = [...lies].find(({ match, times }) => times > 0 && match(seen))
    if (lie !== undefined) lie.times -= 1
    return {
      isSent: lie?.ran !== false,
      reply: (reply: Reply): Reply | 'silence' => {
        seen.open = false
        if (reply.code === 0) seen.reply = reply.message
        const loss = lostBy(sent)
        if (loss === 'cut') session.destroy()
        if (loss === 'refusal') return { code: UNAVAILABLE.code, text: UNAVAILABLE.message }
        if (loss !== undefined) return 'silence'
        return lie === undefined ? reply : { code: lie.code, text: lie.message }
      },
      gone: () => {
        seen.open = false
      },
    }
  }
  const lostBy = (sent: readonly (readonly [Loss, SentCommand<SeenCall> | undefined])[]): Loss | undefined => {
    for (const [loss, command] of sent) {
      const own = drops.get(loss)
      if (!own?.concerns(command)) continue
      own.finish(command)
      return loss
    }
    return undefined
  }

  const server = createServer()
  server.on('session', take)
  server.on('sessionError', () => {})
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, HOST, resolve)
  })
  const resetAll = () => {
    for (const session of [...sessions]) session.destroy()
  }
  return {
    port,
    url: `http://${HOST}:${port}`,
    get connections() {
      return sessions.size
    },
    calls,
    count: (match = () => true) => calls.filter(match).length,
    forget: () => {
      calls.length = 0
      messages.clear()
    },
    messagesIn: (method) => messages.get(method) ?? 0,
    dropReply: ({ loss = 'cut', ...options } = {}) => (drops.get(loss) as ReplyDrops<SeenCall>).add(options),
    lie: ({ code, message, times = 1, match = () => true, ran = false }) => {
      const lie: Lie = { code, message, times, match, ran }
      lies.add(lie)
      return {
        get left() {
          return lie.times
        },
        end: () => void lies.delete(lie),
      }
    },
    resetAll,
    stop: async () => {
      server.close()
      resetAll()
      await release()
    },
  }
}

/** When one of the two is gone, so is the other. */
function joinLives(session: ServerHttp2Session, upstream: ClientHttp2Session, done: () => void): void {
  session.on('error', () => {})
  upstream.on('error', () => {})
  session.on('close', () => {
    done()
    upstream.destroy()
  })
  upstream.on('close', () => session.destroy())
}
