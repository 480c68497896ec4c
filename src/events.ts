/**
 * What a source tells about itself, for logs and metrics. No event is needed to use a source.
 */

/** What the account of a cancelled consumer says. */
export interface Released {
  /** Claims given back. */
  readonly released: number
  /** Settlements that were confirmed after the cancel. */
  readonly settledDuringGrace: number
  /** Claims that could not be given back for certain; they lapse with their lease. */
  readonly abandoned: number
}

/** What the account of a finished run says. */
export interface Summary extends Released {
  readonly acked: number
  readonly requeued: number
  readonly deadLettered: number
  /** Claims whose lease was lost while they were handled. */
  readonly lost: number
}

/** How a delivery ended, as told by events and by `process`. */
export type SettledAs = 'acked' | 'requeued' | 'dead-lettered' | 'released' | 'cancelled' | 'lost'

/** An event of a source; `type` tells them apart. */
export type SourceEvent =
  /** A claim request was answered with this many claims. */
  | { readonly type: 'claimed'; readonly count: number }
  | { readonly type: 'delivered'; readonly id: string; readonly attempt: number }
  | { readonly type: 'settled'; readonly id: string; readonly as: SettledAs }
  /** A claim was given back because of a cancel. */
  | { readonly type: 'released'; readonly id: string }
  /** The claim turned out not to be ours any more. */
  | { readonly type: 'lease-lost'; readonly id: string }
  /** By our own clock the lease has run out without a confirmed renewal. */
  | { readonly type: 'lease-expired'; readonly id: string }
  /** Renewals failed for a while and are confirmed again, in time. */
  | { readonly type: 'lease-restored'; readonly id: string }
  /**
   * What became of the one lease that keeps all claims of the queue object alive (etcd): `suspended`: not confirmed in time;
   * `expired`: gone, and the claims with it; `restored`: a new one is there for the next claims; `failed`: there is none now.
   */
  | { readonly type: 'lease'; readonly state: 'suspended' | 'expired' | 'restored' | 'failed' }
  /** Bytes that do not decode or do not fit the schema; the message was dead-lettered. */
  | { readonly type: 'decode-failed'; readonly id: string; readonly error: unknown }
  /** `credit`, not an empty queue, holds the stream. */
  | { readonly type: 'credit-limited'; readonly credit: number }
  /** Nothing was settled for a whole lease while the demand or the credit is used up. */
  | { readonly type: 'stalled'; readonly oldestUnsettledId: string }
  /** `maxLeaseMs` ran out: the lease is renewed no more. */
  | { readonly type: 'stuck'; readonly id: string }
  | { readonly type: 'progress'; readonly id: string; readonly value: unknown }
  | { readonly type: 'reconnecting'; readonly error: unknown }
  | { readonly type: 'reconnected' }
  | { readonly type: 'error'; readonly error: unknown }
