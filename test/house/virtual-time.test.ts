import { describe, expect, it } from 'vitest'
import { checkSources } from '../../scripts/house/check.js'

function broken(text: string, path = 'src/core/file.ts'): string[] {
  return checkSources(new Map([[path, text]])).map(
    ({ line, rule, message }) => `${line} ${rule}: ${message.split(' ')[0]}`,
  )
}

describe('native time', () => {
  it.each([
    ['setTimeout(() => {}, 1)'],
    ['const arm = setInterval'],
    ['setImmediate(work)'],
    ['queueMicrotask(work)'],
    ['const at = performance.now()'],
    ['const { now } = performance'],
    ['const at = Date.now()'],
    ['const now = Date.now'],
    ["const at = Date['now']()"],
    ['const at = new Date()'],
    ['const at = Date()'],
    ['const signal = AbortSignal.timeout(5)'],
    ['process.nextTick(work)'],
    ['const at = process.hrtime()'],
    ['globalThis.setTimeout(work, 1)'],
    ["globalThis['queueMicrotask'](work)"],
    ['const at = globalThis.Date.now()'],
    ['const timers = { setTimeout }'],
    ['const { setTimeout: arm } = globalThis, later = setTimeout'],
    ['class Timer { constructor(arm = setTimeout) {} }'],
    ['const arm = setTimeout as unknown'],
    ['Promise.race([a, b])'],
    ['Promise.resolve().then(work)'],
    ['const p = new Promise((resolve) => resolve(1))'],
    ["import { setTimeout as sleep } from 'node:timers/promises'"],
    ["import { performance as clock } from 'node:perf_hooks'"],
    ["import { asyncScheduler } from 'rxjs'"],
    ["import { asapScheduler as soon } from 'rxjs'"],
  ])('%s', (text) => {
    const found = broken(`\n${text}`)
    expect(found.length).toBeGreaterThan(0)
    for (const each of found) expect(each).toMatch(/^2 no-native-time/)
  })
})

describe('await', () => {
  it.each([
    ['await work()', 'await'],
    ['for await (const x of xs) {}', 'for'],
    ['await using x = open()', 'await'],
    ['async function f() {}', 'an'],
    ['const f = async () => {}', 'an'],
    ['const f = { async g() {} }', 'an'],
    ['class C { async *g() {} }', 'an'],
  ])('%s', (text, what) => {
    expect(broken(`\n${text}`)).toContain(`2 no-await: ${what}`)
  })
})

describe('what is allowed', () => {
  it.each([
    ['clock.setTimeout(work)'],
    ['const timers = { setTimeout: 1 }'],
    ['class Clock { performance() {} }'],
    ['const at = new Date(0)'],
    ['const isDate = x instanceof Date'],
    ['function f(): Promise<number> { return eventual }'],
    ['type Arm = typeof setTimeout'],
    ['interface Timers { setTimeout(): void; performance: Performance }'],
    ['const f: typeof setTimeout | undefined = undefined'],
    ['// await setTimeout()'],
    ['const text = "await setTimeout()"'],
    ["import { Observable, type SchedulerLike } from 'rxjs'"],
    ["import type { asyncScheduler } from 'rxjs'"],
    ['using x = open()'],
    ['for (const x of xs) {}'],
  ])('%s', (text) => {
    expect(broken(text)).toEqual([])
  })

  it.each(['src/operators/file.ts', 'src/sinks/file.ts'])('not in %s', (path) => {
    expect(broken('Date.now()', path)).toHaveLength(1)
  })

  it.each(['src/core/clock.ts', 'src/sources/redis/file.ts', 'src/testing/file.ts', 'src/queue.ts'])(
    'all of it in %s',
    (path) => {
      expect(broken('await setTimeout(Date.now())', path)).toEqual([])
    },
  )
})
