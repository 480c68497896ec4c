/**
 * Millrace turns queues into streams.
 *
 * @packageDocumentation
 */
export { bytes, type Codec, json } from './codec.js'
export type { DeadLetter, DeadLetterFilter, DeadLetters } from './core/dead-letters.js'
export type { Handler, HandlerResult } from './core/handler.js'
export type { Delivery, RequeueOptions, Settlement } from './delivery.js'
export * from './driver.js'
export * from './errors.js'
export type { Released, SettledAs, SourceEvent, Summary } from './events.js'
export type { Flow, Operator } from './flow.js'
export { type BatchOptions, batch } from './operators/batch.js'
export { concatMap } from './operators/concat-map.js'
export { type DeadLetterOptions, deadLetter } from './operators/dead-letter.js'
export { type FilterOptions, filter } from './operators/filter.js'
export { mapPayload } from './operators/map-payload.js'
export { type HandlerOptions, mergeMap } from './operators/merge-map.js'
export { type Processed, process } from './operators/process.js'
export { type RetryInPlaceOptions, retryInPlace } from './operators/retry-in-place.js'
export { type Backoff, retryLater } from './operators/retry-later.js'
export { pipe } from './pipe.js'
export {
  type Enqueued,
  type EnqueueInOptions,
  type EnqueueOptions,
  type Entry,
  type Outcome,
  Queue,
  type QueuedMessage,
  type QueueOptions,
  type ReceiveOptions,
  type SourceOptions,
} from './queue.js'
export type { StandardSchemaV1 } from './schema.js'
export { collect } from './sinks/collect.js'
export { consume } from './sinks/consume.js'
export { drain } from './sinks/drain.js'
export { forEach } from './sinks/for-each.js'
export { run, type SinkOptions } from './sinks/run.js'
export { toQueue } from './sinks/to-queue.js'
export type { QueueSource, StopBounds } from './source.js'
