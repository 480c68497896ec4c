/**
 * The one file that uses the package `etcd3`.
 *
 * That package repeats transactions whose answer was lost, stops talking to a host for seconds after a few errors, loses
 * events of a watch that is cut twice, and hears late of a lease that is gone. So only its calls and streams are used, with
 * all of its own fault handling off: what is left is the protocol.
 */
import type { EventEmitter } from 'node:events'
import {
  Etcd3,
  type ICompare,
  type IDeleteRangeRequest,
  type IOptions,
  type IPutRequest,
  type IRangeRequest,
  Namespace,
} from 'etcd3'
import { BackendUnavailableError, InvalidOptionError } from '../../errors.js'
import type {
  Compare,
  EtcdClient,
  KeepAlive,
  KeepAliveListener,
  KeyValue,
  Lease,
  Op,
  Result,
  Txn,
  TxnReply,
  Watch,
  WatchListener,
} from './client.js'
import { asBackendError } from './errors.js'
import { type Member, Members } from './members.js'

/** A client of etcd3 or a namespace of one, whose options are copied, or the options of one. */
export type EtcdTarget = Etcd3 | Namespace | EtcdOptions

/** Options of etcd3, with a prefix for all keys. */
export interface EtcdOptions extends IOptions {
  /** Comes before all keys. Default: nothing. */
  readonly prefix?: string
}

/** Makes a client of our own from what a caller gave. Checks without I/O. */
export function clientFactory(target: EtcdTarget): () => EtcdClient {
  const { options, prefix } = readTarget(target)
  return () => new Etcd3Client(options, prefix)
}

interface Parts {
  readonly options: IOptions
  readonly prefix: Buffer
}

const HIDDEN = 'a value that is not shown'

function readTarget(target: EtcdTarget): Parts {
  if (isNamespace(target)) return { options: target.options, prefix: Buffer.from(target.prefix) }
  if (typeof target !== 'object' || target === null || Array.isArray(target) || !('hosts' in target)) {
    const shown = typeof target === 'object' && target !== null ? HIDDEN : target
    throw new InvalidOptionError('target', shown, 'a client of etcd3, or its options with hosts')
  }
  const { prefix = '', ...options } = target
  checkHosts(options.hosts)
  if (typeof prefix !== 'string') throw new InvalidOptionError('target.prefix', prefix, 'a string')
  return { options, prefix: Buffer.from(prefix) }
}

function checkHosts(hosts: unknown): void {
  const list = typeof hosts === 'string' ? [hosts] : hosts
  const fits = Array.isArray(list) && list.length > 0 && list.every((host) => typeof host === 'string' && host !== '')
  if (!fits) throw new InvalidOptionError('target.hosts', hosts, 'an address or a list of addresses')
}

/** What a namespace holds and its type does not show. By shape, since there may be two copies of the package. */
interface OpenNamespace {
  readonly prefix: Buffer
  readonly options: IOptions
}

function isNamespace(target: unknown): target is OpenNamespace {
  if (target instanceof Namespace) return true
  const candidate = target as { kv?: unknown; prefix?: unknown; leaseClient?: unknown; options?: unknown } | null
  return (
    typeof candidate === 'object' &&
    candidate !== null &&
    'leaseClient' in candidate &&
    Buffer.isBuffer(candidate.prefix)
  )
}

/** Runs what it is given, once, and nothing else. */
const ONCE = { execute: async <T>(work: (context: object) => T): Promise<T> => work({}) }

/** A silent network is noticed by pings; a server allows one in five seconds. */
const CHANNEL = {
  'grpc.keepalive_time_ms': 6_000,
  'grpc.keepalive_timeout_ms': 3_000,
  'grpc.keepalive_permit_without_calls': 0,
  'grpc.max_receive_message_length': 64 * 1024 * 1024,
  'grpc.initial_reconnect_backoff_ms': 50,
  'grpc.min_reconnect_backoff_ms': 50,
  'grpc.max_reconnect_backoff_ms': 1_000,
}

function ownOptions(options: IOptions): IOptions {
  return {
    ...options,
    grpcOptions: { ...CHANNEL, ...options.grpcOptions },
    // Ours: a deadline in the caller's defaults would end our streams.
    defaultCallOptions: undefined,
    faultHandling: { global: ONCE, host: () => ONCE },
  } as unknown as IOptions
}

class Etcd3Client implements EtcdClient {
  readonly #members: Members<Etcd3>
  readonly #prefix: Buffer

  constructor(options: IOptions, prefix: Buffer) {
    const own = ownOptions(options)
    const hosts = typeof own.hosts === 'string' ? [own.hosts] : own.hosts
    // A client for each: one for all would ask a random one each time.
    this.#members = new Members(hosts.map((host) => new Etcd3({ ...own, hosts: host })))
    this.#prefix = prefix
  }

  get members(): number {
    return this.#members.all.length
  }

  async txn(txn: Txn, deadlineMs: number): Promise<TxnReply> {
    const wire = this.#txn(txn)
    const reply = (await this.#call(deadlineMs, ({ kv }, options) => kv.txn(wire, options))) as unknown as WireTxnReply
    return {
      succeeded: reply.succeeded,
      results: this.#results(reply.responses),
      revision: Number(reply.header.revision),
    }
  }

  async grant(ttlS: number, deadlineMs: number): Promise<Lease> {
    const { ID, TTL } = await this.#call(deadlineMs, ({ leaseClient }, options) =>
      leaseClient.leaseGrant({ TTL: ttlS }, options),
    )
    return { id: ID, ttlMs: Number(TTL) * 1_000 }
  }

  async revoke(lease: string, deadlineMs: number): Promise<void> {
    await this.#call(deadlineMs, ({ leaseClient }, options) => leaseClient.leaseRevoke({ ID: lease }, options))
  }

  async keepAlive(listener: KeepAliveListener): Promise<KeepAlive> {
    const member = this.#members.current
    const stream = await opened(() => member.client.leaseClient.leaseKeepAlive())
    const { broken, end } = endings(stream, member, (error) => listener.broken(error))
    stream.on('data', (reply) => listener.alive(reply.ID, Number(reply.TTL) * 1_000))
    return { send: (lease) => sending(() => stream.write({ ID: lease }), broken), end }
  }

  async watch(prefix: string, listener: WatchListener): Promise<Watch> {
    const member = this.#members.current
    const stream = await opened(() => member.client.watchClient.watch())
    const { broken, end } = endings(stream, member, (error) => listener.broken(error))
    stream.on('data', (data) => {
      const reply = data as unknown as WireWatchReply
      if (reply.canceled) return broken(new Error(`the watch was cancelled: ${reply.cancel_reason || 'compacted'}`))
      const revision = Number(reply.header.revision)
      if (reply.created) return listener.started(revision)
      if (reply.events.length > 0) return listener.changed(reply.events.map((event) => this.#event(event)))
      listener.progressed(revision)
    })
    const key = this.#key(prefix)
    sending(() => stream.write({ create_request: { key, range_end: endOf(key) } }), broken)
    return { progress: () => sending(() => stream.write({ progress_request: {} }), broken), end }
  }

  close(): void {
    for (const { client } of this.#members.all) client.close()
  }

  async #call<T>(deadlineMs: number, start: (client: Etcd3, options: object) => Promise<T>): Promise<T> {
    const member = this.#members.current
    try {
      return await within(deadlineMs, (options) => start(member.client, options))
    } catch (cause) {
      const error = asBackendError(cause)
      if (error instanceof BackendUnavailableError) this.#members.suspect(member, error)
      throw error
    }
  }

  #event({ type, kv }: WireEvent) {
    const { key, value, mod } = this.#keyValue(kv)
    return { type: type === 'Put' ? 'put' : 'delete', key, value, mod } as const
  }

  #key(key: string): Buffer {
    const bytes = Buffer.from(key)
    return this.#prefix.length === 0 ? bytes : Buffer.concat([this.#prefix, bytes])
  }

  #txn({ compare, success, failure }: Txn) {
    return {
      compare: compare.map((condition) => this.#compare(condition)),
      success: success.map((op) => this.#op(op)),
      failure: failure.map((op) => this.#op(op)),
    }
  }

  #compare({ key, end, field, is, to }: Compare): ICompare {
    const at = this.#key(key)
    const wire: ICompare =
      field === 'mod'
        ? { key: at, result: is, target: 'Mod', mod_revision: to }
        : { key: at, result: is, target: 'Create', create_revision: to }
    if (end !== undefined) wire.range_end = this.#key(end)
    return wire
  }

  #op(op: Op): object {
    if (op.kind === 'txn') return { request_txn: this.#txn(op.txn) }
    const key = this.#key(op.key)
    if (op.kind === 'put') {
      const put: IPutRequest =
        op.lease === undefined ? { key, value: op.value } : { key, value: op.value, lease: op.lease }
      return { request_put: put }
    }
    const range: IDeleteRangeRequest = op.end === undefined ? { key } : { key, range_end: this.#key(op.end) }
    if (op.kind === 'delete') return { request_delete_range: range }
    const get: IRangeRequest = range
    // What is left out is neither converted nor sent.
    if (op.limit !== undefined && op.limit > 0) get.limit = op.limit
    if (op.keysOnly === true) get.keys_only = true
    return { request_range: get }
  }

  #results(responses: readonly WireResponse[]): Result[] {
    return responses.map((response) => this.#result(response))
  }

  #result({ response_range, response_txn }: WireResponse): Result {
    if (response_range) {
      return {
        ...NOTHING,
        kvs: response_range.kvs.map((kv) => this.#keyValue(kv)),
        more: response_range.more,
        count: Number(response_range.count),
      }
    }
    if (response_txn)
      return { ...NOTHING, succeeded: response_txn.succeeded, results: this.#results(response_txn.responses) }
    return NOTHING
  }

  #keyValue({ key, value, mod_revision, create_revision }: WireKeyValue): KeyValue {
    const shown = key.toString('utf8', this.#prefix.length)
    return { key: shown, value, mod: Number(mod_revision), create: Number(create_revision) }
  }
}

const NOTHING: Result = { kvs: [], more: false, count: 0, succeeded: false, results: [] }

interface WireKeyValue {
  readonly key: Buffer
  readonly value: Buffer
  readonly mod_revision: string
  readonly create_revision: string
}

interface WireResponse {
  readonly response_range?: {
    readonly kvs: readonly WireKeyValue[]
    readonly more: boolean
    readonly count: string
  } | null
  readonly response_txn?: { readonly succeeded: boolean; readonly responses: readonly WireResponse[] } | null
}

interface WireTxnReply {
  readonly header: { readonly revision: string }
  readonly succeeded: boolean
  readonly responses: readonly WireResponse[]
}

interface WireEvent {
  readonly type: string
  readonly kv: WireKeyValue
}

interface WireWatchReply {
  readonly header: { readonly revision: string }
  readonly created: boolean
  readonly canceled: boolean
  readonly cancel_reason: string
  readonly events: readonly WireEvent[]
}

/** What gRPC has for a call under way. */
interface Call {
  cancelWithStatus(code: number, details: string): void
}

const DEADLINE_EXCEEDED = 4

/** Makes a call with a deadline of our own: those of gRPC are instants by the wall clock, which can be set. */
async function within<T>(ms: number, start: (options: object) => Promise<T>): Promise<T> {
  let call: Call | undefined
  let isOver = false
  const end = () => call?.cancelWithStatus(DEADLINE_EXCEEDED, `no answer within ${ms} ms`)
  const interceptor = (options: object, next: (options: object) => Call): Call => {
    call = next(options)
    if (isOver) queueMicrotask(end)
    return call
  }
  const started = start({ interceptors: [interceptor] })
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      isOver = true
      end()
      reject(new BackendUnavailableError(`etcd cannot be reached: no answer within ${ms} ms`))
    }, ms)
  })
  try {
    return await Promise.race([started, late])
  } finally {
    clearTimeout(timer)
    started.catch(() => {})
  }
}

interface Duplex {
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'end', listener: () => void): unknown
  cancel(): void
}

/** A stream whose end is told once, however it ends, and not at all when we end it. */
function endings(stream: Duplex, { open }: Member<Etcd3>, told: (error: Error) => void) {
  let over = false
  const finish = () => {
    over = true
    open.delete(broken)
    // The package takes a cancel for a fault of the member, and would close the channel of all other calls to it.
    const emitter = stream as unknown as EventEmitter
    emitter.removeAllListeners('error')
    emitter.on('error', () => {})
    stream.cancel()
  }
  const broken = (error: unknown) => {
    if (over) return
    finish()
    told(asBackendError(error))
  }
  open.add(broken)
  stream.on('error', (error: Error) => broken(error))
  stream.on('end', () => broken(new Error('the stream ended')))
  return { broken, end: finish }
}

async function opened<S extends object>(open: () => Promise<S>): Promise<S> {
  try {
    return await open()
  } catch (error) {
    throw asBackendError(error)
  }
}

function sending(write: () => unknown, broken: (error: unknown) => void): void {
  try {
    write()
  } catch (error) {
    broken(error)
  }
}

/** The first key that does not begin so. */
function endOf(prefix: Buffer): Buffer {
  const end = Buffer.from(prefix)
  for (let index = end.length - 1; index >= 0; index -= 1) {
    const byte = end[index] as number
    if (byte < 0xff) {
      end[index] = byte + 1
      return end.subarray(0, index + 1)
    }
  }
  return Buffer.from([0])
}
