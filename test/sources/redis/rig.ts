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

/** What a client takes that is to go through something which listens there. */
export const urlOf = ({ port }: { readonly port: number }) => `redis://127.0.0.1:${port}`

/** Makes backends besides. */
export class Rig extends QueueRig {
  backend(target: RedisTarget, options: RedisBackendOptions = {}): Backend {
    return redisBackend(target, options)
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
    url: urlOf(proxy),
    lie: (error: string, times: number) => void lies.push(...Array.from({ length: times }, () => error)),
    get left() {
      return lies.length
    },
  })
}
