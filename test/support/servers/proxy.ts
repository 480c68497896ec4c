import type { Tap } from './proxied-connection.js'
import {
  type CommandFilter,
  type ReplyDrop,
  type ReplyDropOptions,
  ReplyDrops,
  type SentCommand,
} from './reply-drops.js'
import { nameOf, type RespCommand, RespExchange } from './resp-exchange.js'
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js'

/** A command as the proxy saw it come from a client. */
export interface SeenCommand {
  /** In lower case. */
  readonly name: string
  /** The name first. */
  readonly args: RespCommand
  /** By `performance.now()`. */
  readonly at: number
  /** Counts connections from 1. */
  readonly connection: number
}

/** A proxy that knows the commands of Redis, of RESP2 and RESP3. */
export interface RedisProxy extends TcpProxy {
  readonly url: string
  /** All commands seen since the start, or since `forget`. */
  readonly commands: readonly SeenCommand[]
  /** How many of them there are, or of them that match. */
  count(match?: CommandFilter): number
  forget(): void
  /** Calls the listener with each command, before the server has it. Returns what ends that. */
  onCommand(listener: (command: SeenCommand) => void): () => void
  /**
   * Lets the server run a command and then loses its reply: nothing of it is passed on, and the connection is reset in
   * that place, so that later replies of a pipeline are lost as well.
   */
  dropReply(options?: ReplyDropOptions): ReplyDrop
}

/**
 * Starts a proxy in front of a Redis server, to lose replies and to count commands besides what a {@link TcpProxy} does.
 *
 * @example
 * const proxy = await startProxy(server.port)
 * const { dropped } = proxy.dropReply({ match: named('evalsha') })
 * await dropped // The script has run, and its caller will not hear of it.
 */
export async function startProxy(targetPort: number): Promise<RedisProxy> {
  const commands: SeenCommand[] = []
  const listeners = new Set<(command: SeenCommand) => void>()
  const drops = new ReplyDrops()
  let connections = 0

  const tapFor = () => {
    connections += 1
    const connection = connections
    return tap(drops, (args) => {
      const seen = { name: nameOf(args), args, at: performance.now(), connection }
      commands.push(seen)
      for (const listener of listeners) listener(seen)
    })
  }

  const proxy = await startTcpProxy(targetPort, tapFor)
  return Object.assign(proxy, {
    url: `redis://127.0.0.1:${proxy.port}`,
    commands,
    count: (match: CommandFilter = () => true) => commands.filter(({ args }) => match(args)).length,
    forget: () => {
      commands.length = 0
    },
    onCommand: (listener: (command: SeenCommand) => void) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    dropReply: (options?: ReplyDropOptions) => drops.add(options),
  })
}

/** Matches commands by name, in any case. */
export function named(...names: readonly string[]): CommandFilter {
  const wanted = new Set(names.map((name) => name.toLowerCase()))
  return (command) => wanted.has(nameOf(command))
}

/** Follows one connection. */
function tap(drops: ReplyDrops, see: (command: RespCommand) => void): Tap {
  const exchange = new RespExchange<SentCommand>((command) => {
    see(command)
    return drops.send(command)
  })
  let cut = false
  return {
    requests: (chunk) => exchange.requests(chunk),
    replies: (chunk) => {
      const passed: Buffer[] = []
      for (const { bytes, to, isLast } of cut ? [] : exchange.replies(chunk)) {
        if (!drops.concerns(to)) {
          passed.push(bytes)
          continue
        }
        if (!isLast) continue
        drops.finish(to)
        cut = true
        break
      }
      return { passed, cut }
    },
  }
}
