/**
 * What this backend needs of an etcd client, in plain types of its own, so that another client can take the place of
 * the one that is used today.
 */

/** A condition of a transaction. With `end` it has to hold for every key from `key` up to `end`; where there is none, for one that is absent. */
export interface Compare {
  readonly key: string
  readonly end?: string
  /** `mod`: the revision that changed the key last, `create`: that which made it; both 0 for a key that is absent. */
  readonly field: 'mod' | 'create'
  readonly is: 'Equal' | 'Less' | 'Greater'
  readonly to: number
}

export type Op =
  | {
      readonly kind: 'get'
      readonly key: string
      readonly end?: string
      readonly limit?: number
      readonly keysOnly?: boolean
    }
  | { readonly kind: 'put'; readonly key: string; readonly value: Buffer; readonly lease?: string }
  | { readonly kind: 'delete'; readonly key: string; readonly end?: string }
  | { readonly kind: 'txn'; readonly txn: Txn }

/** `success` is carried out where all conditions hold, else `failure`; either in one step, in its order. */
export interface Txn {
  readonly compare: readonly Compare[]
  readonly success: readonly Op[]
  readonly failure: readonly Op[]
}

export interface KeyValue {
  readonly key: string
  readonly value: Buffer
  readonly mod: number
  readonly create: number
}

/** The answer to one operation: `kvs`, `more` and `count` of a get, the rest of a nested transaction. */
export interface Result {
  readonly kvs: readonly KeyValue[]
  /** There is more than the limit let through. */
  readonly more: boolean
  /** How many keys there are in the range, whatever the limit. */
  readonly count: number
  readonly succeeded: boolean
  readonly results: readonly Result[]
}

export interface TxnReply {
  readonly succeeded: boolean
  readonly results: readonly Result[]
  /** The revision of the store at which it was carried out. */
  readonly revision: number
}

export interface Lease {
  readonly id: string
  /** What was granted, which may be more than was asked for. */
  readonly ttlMs: number
}

/** A stream that keeps leases alive. */
export interface KeepAlive {
  send(lease: string): void
  end(): void
}

export interface KeepAliveListener {
  /** `ttlMs` is 0 where the lease is gone. */
  alive(lease: string, ttlMs: number): void
  broken(error: Error): void
}

export interface WatchEvent {
  readonly type: 'put' | 'delete'
  readonly key: string
  readonly value: Buffer
  readonly mod: number
}

export interface WatchListener {
  /** Everything that changes after this revision will be told. */
  started(revision: number): void
  changed(events: readonly WatchEvent[]): void
  /** The store is at this revision, and all up to it has been told. */
  progressed(revision: number): void
  /** Nothing more comes. */
  broken(error: Error): void
}

export interface Watch {
  /** Asks how far it is. */
  progress(): void
  end(): void
}

/** One store. Nothing is repeated by the client itself: what fails has been sent at most once. */
export interface EtcdClient {
  /** How many members of the cluster it knows. A call that fails is followed by one to another. */
  readonly members: number
  /** One step. Rejects with `BackendUnavailableError` where it may or may not have been carried out. */
  txn(txn: Txn, deadlineMs: number): Promise<TxnReply>
  grant(ttlS: number, deadlineMs: number): Promise<Lease>
  revoke(lease: string, deadlineMs: number): Promise<void>
  keepAlive(listener: KeepAliveListener): Promise<KeepAlive>
  /** Tells what is put to and deleted from the keys that begin so. */
  watch(prefix: string, listener: WatchListener): Promise<Watch>
  close(): void
}
