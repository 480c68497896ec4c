import { symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { findPackages } from '../../demo/packages.js'
import { tempTree } from './temp-tree.js'

const { signal } = new AbortController()

describe('findPackages', () => {
  it('finds plain, scoped and nested packages, and no others', async () => {
    const root = tempTree({
      '.bin/tool': '',
      '.package-lock.json': '{}',
      'b/package.json': '{}',
      'b/node_modules/@s/n/package.json': '{}',
      'a/lib/index.js': '',
      '@scope/one/package.json': '{}',
      '@scope/two/package.json': '{}',
    })
    expect(await findPackages(root, signal)).toEqual(['@scope/one', '@scope/two', 'a', 'b', 'b/node_modules/@s/n'])
  })

  it('lists a linked package without going into it', async () => {
    const root = tempTree({ 'a/package.json': '{}' })
    symlinkSync('..', join(root, 'a', 'node_modules'))
    symlinkSync('a', join(root, 'linked'))
    expect(await findPackages(root, signal)).toEqual(['a', 'linked'])
  })

  it('rejects when there is no such folder', async () => {
    await expect(findPackages('/no/such/folder', signal)).rejects.toThrow('ENOENT')
  })
})
