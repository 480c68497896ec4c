import { join } from 'node:path'
import { memoryBackend } from 'millrace/memory'
import { describe, expect, it, onTestFinished } from 'vitest'
import { auditAll, auditsOf, fill, openPackages, type Packages, takeStock } from '../../demo/pipeline.js'
import { tempTree } from './temp-tree.js'

const { signal: never } = new AbortController()
const quiet = { step() {}, end() {} }

function packagesInMemory(): Packages {
  const backend = memoryBackend()
  onTestFinished(async () => void (await backend.close()))
  return openPackages(backend)
}

function manyPackages(count: number): string {
  const paths = Array.from({ length: count }, (_, index) => `p${index}/package.json`)
  return tempTree(Object.fromEntries(paths.map((path) => [path, { license: 'MIT' }])))
}

describe('the pipeline', () => {
  it('audits what it can and dead-letters the rest at once', async () => {
    const packages = packagesInMemory()
    const dir = tempTree({
      'good/package.json': { name: 'good', license: 'MIT' },
      'broken/package.json': '{',
      'bare/package.json': { name: 'bare' },
    })
    await fill(packages, dir, never)
    const summary = await auditAll(packages, 2, { stop: never, kill: never }, quiet)
    expect(summary).toMatchObject({ acked: 1, deadLettered: 2, requeued: 0, released: 0 })
    expect(await takeStock(packages)).toEqual({ found: 3, audited: 1, refused: 2, left: 0 })
    const reasons: [string | undefined, string, number][] = []
    for await (const { payload, reason, attempts } of packages.deadLetters)
      reasons.push([payload?.path, reason, attempts])
    expect(reasons.sort()).toEqual([
      ['bare', 'MissingLicenceError: no licence in the manifest, and no licence file', 1],
      ['broken', 'UnreadablePackageError: package.json is not JSON', 1],
    ])
  })

  it('goes on where a stopped run left off', async () => {
    const packages = packagesInMemory()
    const dir = manyPackages(50)
    expect(await fill(packages, dir, never)).toMatchObject({ resumed: false })
    const stop = new AbortController()
    let steps = 0
    const progress = { ...quiet, step: () => ++steps === 10 && stop.abort() }
    await auditAll(packages, 4, { stop: stop.signal, kill: never }, progress)
    const between = await takeStock(packages)
    expect(between.audited).toBeGreaterThanOrEqual(10)
    expect(between.left).toBeGreaterThan(0)
    expect(between.audited + between.left).toBe(50)

    const { resumed, paths } = await fill(packages, dir, never)
    expect(resumed).toBe(true)
    expect(await auditsOf(packages, paths)).toHaveLength(between.audited)
    await auditAll(packages, 4, { stop: never, kill: never }, quiet)
    expect(await takeStock(packages)).toEqual({ found: 50, audited: 50, refused: 0, left: 0 })
    expect(await auditsOf(packages, paths)).toHaveLength(50)
  })

  it('enqueues what a run that was ended while it enqueued has left out', async () => {
    const packages = packagesInMemory()
    const dir = manyPackages(3)
    await packages.enqueue({ folder: join(dir, 'p1'), path: 'p1' }, { id: 'p1' })
    expect(await fill(packages, dir, never)).toEqual({ resumed: true, paths: ['p0', 'p1', 'p2'] })
    expect(await takeStock(packages)).toMatchObject({ found: 3, left: 3 })
  })

  it('audits packages whose path is too long for an id, each once', async () => {
    const packages = packagesInMemory()
    const deep = 'p/node_modules/'.repeat(40)
    const dir = tempTree({
      [`${deep}a/package.json`]: { name: 'a', license: 'MIT' },
      [`${deep}b/package.json`]: { name: 'b', license: 'MIT' },
    })
    await fill(packages, dir, never)
    const { paths } = await fill(packages, dir, never)
    await auditAll(packages, 4, { stop: never, kill: never }, quiet)
    expect(await takeStock(packages)).toEqual({ found: 42, audited: 2, refused: 40, left: 0 })
    expect((await auditsOf(packages, paths)).map(({ name }) => name)).toEqual(['a', 'b'])
  })

  it('enqueues nothing more when it is stopped', async () => {
    const packages = packagesInMemory()
    const reason = new Error('enough')
    await expect(fill(packages, manyPackages(3), AbortSignal.abort(reason))).rejects.toBe(reason)
    expect(await takeStock(packages)).toMatchObject({ found: 0 })
  })

  it('never runs more audits at once than it has lanes', async () => {
    const packages = packagesInMemory()
    await fill(packages, manyPackages(20), never)
    let most = 0
    const counting = {
      ...quiet,
      step: () => void packages.stats().then(({ claimed }) => (most = Math.max(most, claimed))),
    }
    await auditAll(packages, 3, { stop: never, kill: never }, counting)
    expect(most).toBeGreaterThan(0)
    expect(most).toBeLessThanOrEqual(3)
  })
})
