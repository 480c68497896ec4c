import { request } from 'node:http'

const HOST = '127.0.0.1'
const TIMEOUT_MS = 5_000

/** What the server says, as JSON: bytes are base64, 64-bit numbers are text. */
// biome-ignore lint/suspicious/noExplicitAny: each method has an answer of its own, and tests look where they like.
type Answer = any

/** A key with its value, as text. */
export interface StoredKey {
  readonly key: string
  readonly value: string
  readonly modRevision: number
  readonly createRevision: number
  readonly version: number
  /** The id in decimal, as the server writes it; '0' for none. */
  readonly lease: string
}

/** Requests to one etcd member over its JSON gateway: another way in than any client under test takes. */
export class EtcdGateway {
  readonly port: number
  /** Goes with each request, once authentication is on. */
  #token: string | undefined

  constructor(port: number) {
    this.port = port
  }

  /** @param method As in `kv/range`. Rejects with what the server says, and when there is no answer within 5 s. */
  async call(method: string, body: object = {}, timeoutMs = TIMEOUT_MS): Promise<Answer> {
    const { status, text } = await this.#send('POST', `/v3/${method}`, JSON.stringify(body), timeoutMs)
    const answer = JSON.parse(text)
    if (status !== 200) throw new Error(answer.message ?? answer.error ?? text)
    return answer
  }

  /** Signs in; later requests are this user's. */
  async authenticate(name: string, password: string): Promise<void> {
    // It would be asked about one that is over.
    this.#token = undefined
    this.#token = (await this.call('auth/authenticate', { name, password })).token
  }

  /** Everything under a prefix in the order of keys, of the whole server when none is given. */
  async list(prefix = ''): Promise<StoredKey[]> {
    const { kvs = [] } = await this.call('kv/range', prefixOf(prefix))
    return kvs.map((kv: Answer) => ({
      key: textOf(kv.key),
      value: textOf(kv.value),
      modRevision: Number(kv.mod_revision),
      createRevision: Number(kv.create_revision),
      version: Number(kv.version),
      lease: kv.lease ?? '0',
    }))
  }

  async keys(prefix = ''): Promise<string[]> {
    const { kvs = [] } = await this.call('kv/range', { ...prefixOf(prefix), keys_only: true })
    return kvs.map((kv: Answer) => textOf(kv.key))
  }

  async count(prefix = ''): Promise<number> {
    return Number((await this.call('kv/range', { ...prefixOf(prefix), count_only: true })).count ?? 0)
  }

  async put(key: string, value: string | Buffer): Promise<void> {
    await this.call('kv/put', { key: base64(key), value: base64(value) })
  }

  async delete(key: string): Promise<boolean> {
    return Number((await this.call('kv/deleterange', { key: base64(key) })).deleted ?? 0) > 0
  }

  /** How many keys there were. */
  async deletePrefix(prefix = ''): Promise<number> {
    return Number((await this.call('kv/deleterange', prefixOf(prefix))).deleted ?? 0)
  }

  /** The ids of all leases that live. */
  async leases(): Promise<string[]> {
    return ((await this.call('lease/leases')).leases ?? []).map(({ ID }: Answer) => String(ID))
  }

  /** What a lease was granted for in seconds (0 when it is over), and its keys. */
  async lease(id: string): Promise<{ readonly grantedS: number; readonly keys: string[] }> {
    const { grantedTTL = '0', keys = [] } = await this.call('lease/timetolive', { ID: id, keys: true })
    return { grantedS: Number(grantedTTL), keys: keys.map(textOf) }
  }

  async revoke(id: string): Promise<void> {
    await this.call('lease/revoke', { ID: id })
  }

  /** Forgets all revisions before the newest one. */
  async compact(): Promise<void> {
    await this.call('kv/compaction', { revision: await this.#revision(), physical: true })
  }

  /** How many watches there are. */
  watchers(): Promise<number> {
    return this.metric('etcd_debugging_mvcc_watcher_total')
  }

  /** A number among those that the server publishes, summed over its labels. */
  async metric(name: string): Promise<number> {
    const { text } = await this.#send('GET', '/metrics', '', TIMEOUT_MS)
    const lines = text.split('\n').filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
    if (lines.length === 0) throw new Error(`etcd publishes no ${name}`)
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
  }

  /** Of the store. */
  async #revision(): Promise<number> {
    return Number((await this.call('kv/range', { key: base64('?') })).header.revision)
  }

  #send(method: string, path: string, body: string, timeoutMs: number): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      // No connection stays open: tests count what is.
      const headers = {
        'content-length': Buffer.byteLength(body),
        connection: 'close',
        ...(this.#token !== undefined && { authorization: this.#token }),
      }
      const signal = AbortSignal.timeout(timeoutMs)
      const sent = request({ host: HOST, port: this.port, method, path, headers, agent: false, signal }, (reply) => {
        const chunks: Buffer[] = []
        reply.on('data', (chunk) => chunks.push(chunk))
        reply.on('error', reject)
        reply.on('end', () => resolve({ status: reply.statusCode ?? 0, text: Buffer.concat(chunks).toString() }))
      })
      sent.on('error', reject)
      sent.end(body)
    })
  }
}

function base64(bytes: string | Buffer): string {
  return Buffer.from(bytes).toString('base64')
}

function textOf(bytes = ''): string {
  return Buffer.from(bytes, 'base64').toString()
}

/** The range of all keys that begin so. A zero byte at both ends means all keys there are. */
function prefixOf(prefix: string): { readonly key: string; readonly range_end: string } {
  if (prefix === '') return { key: base64('\0'), range_end: base64('\0') }
  const end = Buffer.from(prefix)
  end[end.length - 1] = (end.at(-1) as number) + 1
  return { key: base64(prefix), range_end: base64(end) }
}
