import { type ConformanceOptions, registerConcern } from './kit.js'

/**
 * Registers the conformance suite for a backend: every scenario that a backend must get right, by concern.
 *
 * Works with any test runner that has `describe` and `it`; assertions are those of Node.
 *
 * @example
 * ```ts
 * conformance({ name: 'memory', backend: () => memoryBackend(), describe, it })
 * ```
 */
export function conformance(options: ConformanceOptions): void {
  options.describe(`conformance of the ${options.name} backend`, () => {
    for (const concern of CONCERNS) registerConcern(options, concern)
  })
}

const CONCERNS: readonly Parameters<typeof registerConcern>[1][] = []
