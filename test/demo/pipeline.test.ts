import { memoryBackend } from 'millrace/memory'
import { describe, expect, it, onTestFinished } from 'vitest'
import { auditAll, fill, openQueues, type Queues, takeStock } from '../../demo/pipeline.js'
import { tempTree } from './temp-tree.js'

const { signal: never } = new AbortController()
const quiet = { step() {}, end() {} }

function queuesInMemory(): Queues {
  const backend = memoryBackend()
  onTestFinished(async () => void (await backend.close()))
  return openQueues(backend)
}

function manyPackages(count: number): string {
  const paths = Array.from({ length: count }, (_, index) => `p${index}/package.json`)
  return tempTree(Object.fromEntries(paths.map((path) => [path, { license: 'MIT' }])))
}

describe('the pipeline', () => {
  it('audits what it can and dead-letters the rest at once', async () => {
    const queues = queuesInMemory()
    const dir = tempTree({
      'good/package.json': { name: 'good', license: 'MIT' },
      'broken/package.json': '{',
      'bare/package.json': { name: 'bare' },
    })
    await fill(queues, dir, never)
    const summary = await auditAll(queues, 2, { stop: never, kill: never }, quiet)
    expect(summary).toMatchObject({ acked: 1, deadLettered: 2, requeued: 0, released: 0 })
    expect(await takeStock(queues)).toEqual({ found: 3, audited: 1, refused: 2, left: 0 })
    const reasons: [string | undefined, string, number][] = []
    for await (const { payload, reason, attempts } of queues.packages.deadLetters)
      reasons.push([payload?.path, reason, attempts])
    expect(reasons.sort()).toEqual([
      ['bare', 'MissingLicenceError: no licence in the manifest, and no licence file', 1],
      ['broken', 'UnreadablePackageError: package.json is not JSON', 1],
    ])
  })

  it('goes on where a stopped run left off', async () => {
    const queues = queuesInMemory()
    const dir = manyPackages(50)
    expect(await fill(queues, dir, never)).toBe('new')
    const stop = new AbortController()
    let steps = 0
    const progress = { ...quiet, step: () => ++steps === 10 && stop.abort() }
    await auditAll(queues, 4, { stop: stop.signal, kill: never }, progress)
    const between = await takeStock(queues)
    expect(between.audited).toBeGreaterThanOrEqual(10)
    expect(between.left).toBeGreaterThan(0)
    expect(between.audited + between.left).toBe(50)

    expect(await fill(queues, dir, never)).toBe('resumed')
    await auditAll(queues, 4, { stop: never, kill: never }, quiet)
    expect(await takeStock(queues)).toEqual({ found: 50, audited: 50, refused: 0, left: 0 })
  })

  it('starts anew after a finished run', async () => {
    const queues = queuesInMemory()
    for (const count of [3, 5]) {
      expect(await fill(queues, manyPackages(count), never)).toBe('new')
      await auditAll(queues, 4, { stop: never, kill: never }, quiet)
      expect(await takeStock(queues)).toEqual({ found: count, audited: count, refused: 0, left: 0 })
    }
  })

  it('never runs more audits at once than it has lanes', async () => {
    const queues = queuesInMemory()
    await fill(queues, manyPackages(20), never)
    let most = 0
    const counting = {
      ...quiet,
      step: () => void queues.packages.stats().then(({ claimed }) => (most = Math.max(most, claimed))),
    }
    await auditAll(queues, 3, { stop: never, kill: never }, counting)
    expect(most).toBeGreaterThan(0)
    expect(most).toBeLessThanOrEqual(3)
  })
})
