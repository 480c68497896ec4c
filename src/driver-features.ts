/**
 * What backends tell of themselves, as drivers and the engine see it.
 */

/** What a backend can do by nature. The conformance kit reads the flags and checks that each tells the truth. */
export interface DriverFeatures {
  /** Messages outlive the process that enqueued them. */
  readonly durable: boolean
  /** Consumers in different processes share a queue. */
  readonly multiProcess: boolean
  /** Every change that a waiting consumer cares about is hinted at without fail, so no slow poll is needed. */
  readonly exactHints: boolean
  /** `arrivedAt` and delays are reckoned by the store's clock, not by a client's. */
  readonly serverTime: boolean
  /**
   * What was sent in one turn of the program is carried out in that order. A claim is then sent together with the
   * settlements that make room for it, and never finds more held than before.
   */
  readonly ordered: boolean
  /**
   * It works while this program does, so that a consumer with many lanes does well to have two claims on their way: one
   * half is handled while the other is fetched. Default false.
   */
  readonly pipelined?: boolean
  /** Independent groups of consumers, each seeing every message. */
  readonly groups: boolean
  /** Order within a partition is kept by one live claim per partition. */
  readonly partitions: boolean
  /** A transaction of the caller's own can carry an enqueue or an ack: the driver has {@link OwnTransaction}. */
  readonly ownTransactions: boolean
  /** The smallest lease that the store can grant, and the step to which it rounds up. */
  readonly leaseStepMs: number
  /** The most messages that one `enqueue` may carry; more is refused with a `LimitError` naming `maxBatch`. */
  readonly maxBatch: number
  /** The most bytes of one `enqueue`, payloads and headers; more is refused naming `maxBatchBytes`. */
  readonly maxBatchBytes: number
}
