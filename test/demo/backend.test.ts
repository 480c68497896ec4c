import { existsSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { openStore, type Store, storeFile } from '../../demo/backend.js'
import { auditAll, auditsOf, fill, openPackages, takeStock } from '../../demo/pipeline.js'
import { auditedTree } from './demo-process.js'

const { signal: never } = new AbortController()
const quiet = { step() {}, end() {} }

function open(dir: string, memory = false): Store {
  const store = openStore({ dir, memory })
  onTestFinished(() => store.close(false))
  return store
}

describe('the store of the demo', () => {
  it('keeps the audits of an unfinished run, and starts anew after a finished one', async () => {
    const dir = auditedTree({ 'a/package.json': { name: 'a', license: 'MIT' }, 'b/package.json': { name: 'b' } })
    for (const resumed of [false, true, false]) {
      const store = open(dir)
      const packages = openPackages(store.backend)
      const plan = await fill(packages, dir, never)
      expect(plan.resumed).toBe(resumed)
      expect(await takeStock(packages)).toEqual(
        resumed ? { found: 2, audited: 1, refused: 1, left: 0 } : { found: 2, audited: 0, refused: 0, left: 2 },
      )
      await auditAll(packages, 2, { stop: never, kill: never }, quiet)
      expect(await auditsOf(packages, plan.paths)).toMatchObject([{ name: 'a', licence: 'MIT', files: 1 }])
      await store.close(resumed)
      expect(existsSync(storeFile(dir))).toBe(!resumed)
    }
  })

  it('is one for a folder, by whatever path that is reached', () => {
    const dir = auditedTree({ 'a/x': '', 'b/x': '' })
    symlinkSync('a', join(dir, 'link'))
    expect(storeFile(join(dir, 'link'))).toBe(storeFile(join(dir, 'a')))
    expect(storeFile(join(dir, 'b'))).not.toBe(storeFile(join(dir, 'a')))
  })

  it('is left to the run that shares it, and goes with the last', async () => {
    const dir = auditedTree({ 'a/x': '' })
    const stores = [open(dir), open(dir)]
    for (const { backend } of stores) await openPackages(backend).stats()
    const left: boolean[] = []
    for (const store of stores) {
      await store.close(true)
      left.push(existsSync(storeFile(dir)))
    }
    expect(left).toEqual([true, false])
  })

  it('is no file when asked for memory', async () => {
    const dir = auditedTree({ 'a/x': '' })
    const { backend } = open(dir, true)
    await openPackages(backend).stats()
    expect(backend.name).toBe('memory')
    expect(existsSync(storeFile(dir))).toBe(false)
  })
})
