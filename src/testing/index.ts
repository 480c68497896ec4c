/**
 * The test kit of Millrace.
 *
 * @packageDocumentation
 */

export { type AsyncMarbleHelpers, asyncMarbles } from './async-marbles.js'
export { type CancelSweep, type CancelWay, cancelSweep, type SweepReport } from './cancel-sweep.js'
export { conformance } from './conformance/index.js'
export type { ConformanceOptions, TestRunner } from './conformance/kit.js'
export {
  type Fault,
  type FaultKind,
  type FaultyBackend,
  faultyBackend,
  type InjectedFault,
  type Verb,
} from './faulty-backend.js'
export type { Latencies, Latency } from './latency.js'
export { type MarbleHelpers, type MarbleOptions, marbles } from './marbles.js'
export type { ClaimWindow } from './recording-backend.js'
export { type Arrival, type Inspection, TestQueue, type TestQueueOptions } from './test-queue.js'
