/**
 * The test kit of Millrace.
 *
 * @packageDocumentation
 */
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
