/**
 * Three lanes, told apart by where a file is:
 *
 * - conformance: `test/sources/*.test.ts`, `test/conformance/**` and `*.conformance.test.ts`: real backends, real time.
 * - slow: `test/slow/**` and `*.slow.test.ts`: crashes, soaks, whole processes.
 * - fast: all the rest, which is most of it: in virtual time, or quick on servers and files of their own.
 *
 * `npx vitest run --project fast` runs one lane, `npx vitest run` all.
 */
import { defineConfig } from 'vitest/config'
import { IS_WHOLE } from './test/support/whole.js'

const conformance = ['test/sources/*.test.ts', 'test/conformance/**/*.test.ts', 'test/**/*.conformance.test.ts']
const slow = ['test/slow/**/*.test.ts', 'test/**/*.slow.test.ts']

export default defineConfig({
  // `millrace` and its subpaths mean src, as they do for the compiler.
  resolve: { tsconfigPaths: true },
  test: {
    projects: [
      {
        extends: true,
        test: {
          name: 'fast',
          include: ['test/**/*.test.ts'],
          exclude: [...conformance, ...slow],
          testTimeout: 5_000,
          hookTimeout: 10_000,
          // Most files take less time than a process of their own would; virtual time minds no neighbour.
          isolate: false,
          maxWorkers: '100%',
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'conformance',
          include: conformance,
          exclude: slow,
          testTimeout: 30_000,
          hookTimeout: 60_000,
          // Most of the files at once: they spend most of their time waiting for leases and delays.
          maxWorkers: 6,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'slow',
          include: slow,
          testTimeout: 120_000,
          hookTimeout: 120_000,
          // A file's imports cost as much as many of its tests.
          isolate: false,
          // One waits while two work: outages take their time.
          maxWorkers: 3,
          sequence: { groupOrder: 2 },
        },
      },
    ],
    restoreMocks: true,
    unstubGlobals: true,
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      // Of the fast lane alone, which runs none of the conformance suite, unless all is run.
      exclude: IS_WHOLE ? [] : ['src/testing/conformance/**'],
      reporter: ['text-summary', 'html', 'json-summary'],
      thresholds: { lines: IS_WHOLE ? 95 : 90 },
    },
  },
})
