/**
 * The settings of a queue that are stored with it, as drivers see them.
 */

/** The settings that all processes of a queue share. They are stored with the queue at first use. */
export interface SharedSettings {
  readonly codec: string
  readonly maxDeliveries: number
  /** `null` means strict priority without ageing. */
  readonly ageing: Ageing | null
  readonly limits: Limits
  readonly retention: Retention
}

/** Priority that yields to waiting: one step of priority is worth `stepMs` of waiting, for priorities up to `cap`. */
export interface Ageing {
  readonly stepMs: number
  /** Priorities above it stay strict: they come after all the others, in strict order. Default 65535. */
  readonly cap: number
}

/** Bounds of a queue. `null` means unbounded. */
export interface Limits {
  /** Messages that are ready or delayed or claimed. Dead letters do not count. */
  readonly maxLength: number | null
  /** Bytes of payloads and headers of those same messages. */
  readonly maxBytes: number | null
  readonly maxPayloadBytes: number
  /** At a bound: refuse the newcomer, or drop the oldest ready messages to make room. */
  readonly whenFull: 'reject' | 'dropOldest'
}

/** How long and how many outcomes of finished messages are kept. An id stays a duplicate while its outcome is. */
export interface Retention {
  readonly outcomesMs: number
  readonly maxOutcomes: number
}

/** The largest priority. */
export const MAX_PRIORITY = 65_535

/** What a queue's settings are when nobody says otherwise. */
export const DEFAULT_SETTINGS: SharedSettings = {
  codec: 'json',
  maxDeliveries: 5,
  ageing: null,
  limits: { maxLength: null, maxBytes: null, maxPayloadBytes: 1_048_576, whenFull: 'reject' },
  retention: { outcomesMs: 3_600_000, maxOutcomes: 10_000 },
}
