import { symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { audit, licenceOf, MissingLicenceError, UnreadablePackageError } from '../../demo/audit.js'
import { tempTree } from './temp-tree.js'

const { signal } = new AbortController()

describe('audit', () => {
  it('reads name, version and licence, and weighs the folder', async () => {
    const root = tempTree({ 'package.json': '{"name":"a","version":"1.2.3","license":"MIT"}', 'lib/a.js': '12345' })
    expect(await audit(root, signal)).toEqual({
      name: 'a',
      version: '1.2.3',
      licence: 'MIT',
      files: 2,
      bytes: 51,
      ms: expect.any(Number),
    })
  })

  it('leaves nested packages to their own audit', async () => {
    const root = tempTree({
      'package.json': { name: 'a', license: 'MIT' },
      'node_modules/b/package.json': { name: 'b' },
      'lib/node_modules/c/index.js': 'c',
    })
    expect(await audit(root, signal)).toMatchObject({ files: 1 })
  })

  it.each(['LICENSE', 'LICENCE.md', 'license-MIT', 'COPYING'])('finds the licence in %s', async (name) => {
    const root = tempTree({ 'package.json': { name: 'a' }, [name]: 'text', 'licensed.js': '' })
    expect(await audit(root, signal)).toMatchObject({ licence: `see ${name}` })
  })

  it('reads a manifest that starts with a byte order mark', async () => {
    const root = tempTree({ 'package.json': '\uFEFF{"license":"MIT"}' })
    expect(await audit(root, signal)).toMatchObject({ licence: 'MIT', version: '' })
  })

  it('counts a link as itself', async () => {
    const root = tempTree({ 'package.json': { license: 'MIT' } })
    symlinkSync('nowhere', join(root, 'dangling'))
    expect(await audit(root, signal)).toMatchObject({ files: 2 })
  })

  it('refuses a package without a licence', async () => {
    const root = tempTree({ 'package.json': { name: 'a', license: '' }, 'licensed.js': '' })
    await expect(audit(root, signal)).rejects.toThrow(MissingLicenceError)
  })

  it.each([
    ['broken JSON', { 'package.json': '{"name": ' }, 'package.json is not JSON'],
    ['JSON that is no object', { 'package.json': '[]' }, 'package.json is not an object'],
    ['no manifest', { 'index.js': '' }, 'ENOENT'],
    ['a folder for a manifest', { 'package.json/x': '' }, 'EISDIR'],
  ])('refuses %s', async (_, files, message) => {
    const failure = await audit(tempTree(files), signal).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(UnreadablePackageError)
    expect((failure as Error).message).toContain(message)
  })

  it('rejects with the reason of its signal', async () => {
    const reason = new Error('enough')
    const root = tempTree({ 'package.json': { license: 'MIT' } })
    await expect(audit(root, AbortSignal.abort(reason))).rejects.toBe(reason)
  })
})

describe('licenceOf', () => {
  it.each([
    [{ license: 'MIT' }, 'MIT'],
    [{ license: { type: 'BSD-3-Clause', url: 'x' } }, 'BSD-3-Clause'],
    [{ licenses: [{ type: 'MIT' }, 'Apache-2.0', 3] }, 'MIT OR Apache-2.0'],
    [{ licenses: { type: 'ISC' } }, 'ISC'],
    [{ license: ' ', licenses: [] }, undefined],
    [{}, undefined],
  ])('reads %j', (manifest, expected) => {
    expect(licenceOf(manifest)).toBe(expected)
  })
})
