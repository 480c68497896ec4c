import { describe, expect, it } from 'vitest'
import { accountOf, auditedTree, largeTree, startDemo } from './demo-process.js'

describe('npm run demo', () => {
  it('audits every package and prints the account', async () => {
    const dir = auditedTree({
      'a/package.json': { name: 'a', version: '1.0.0', license: 'MIT' },
      'a/data': 'x'.repeat(2_000),
      'a/node_modules/b/package.json': { name: 'b', version: '2.0.0', licenses: [{ type: 'ISC' }] },
      '@s/c/package.json': { name: '@s/c', version: '3.0.0' },
      '@s/c/LICENSE': 'text',
      'd/package.json': 'not JSON',
      'e/package.json': { name: 'e' },
    })
    const { code, out, err } = await startDemo('--dir', dir, '--lanes', '2').ended
    const shown = out.replace(/\d+\.\d ms/g, 'N ms').replaceAll(dir, 'DIR')
    const parts = shown.split('\n\n')
    expect(parts[0]).toBe('5 packages in DIR')
    expect(parts[1]).toBe('Licences\n  ISC          1\n  MIT          1\n  see LICENSE  1')
    expect(parts[2]?.split('\n').sort()).toEqual([
      '  @s/c@3.0.0  N ms',
      '  a@1.0.0     N ms',
      '  b@2.0.0     N ms',
      'Slowest',
    ])
    expect(parts[3]).toMatch(/^Largest\n {2}a@1.0.0 {5}2.0 kB\n/)
    expect(parts[4]?.split('\n').sort()).toEqual([
      '  d  UnreadablePackageError: package.json is not JSON',
      '  e  MissingLicenceError: no licence in the manifest, and no licence file',
      'Dead letters',
    ])
    expect(parts[5]).toMatch(/^Total\n {2}packages {2}3\n {2}files {5}5\n {2}size {6}2.1 kB$/)
    expect(parts[6]).toBe('5 found: 3 audited, 2 dead letters, 0 left\n')
    expect(err).toBe([1, 2, 3, 4, 5].map((done) => `${done} of 5 packages\n`).join(''))
    expect(code).toBe(0)
  })

  it('stops cleanly at SIGINT and accounts for every package', async () => {
    const { child, ended } = startDemo('--dir', largeTree(), '--lanes', '4')
    child.stderr?.once('data', () => child.kill('SIGINT'))
    const { code, out, err } = await ended
    expect(err).toContain('Stopping. Once more to force.')
    expect(out).toMatch(/\nStopped: \d+ finished within the grace, \d+ released, 0 abandoned\n/)
    const { found, audited, refused, left } = accountOf(out)
    expect(found).toBe(1_500)
    expect(left).toBeGreaterThan(0)
    expect(audited + refused + left).toBe(1_500)
    expect(code).toBe(130)
  })

  it('goes on when nobody reads its output', async () => {
    const { child, ended } = startDemo('--dir', auditedTree({ 'a/package.json': { license: 'MIT' } }))
    child.stdout?.destroy()
    child.stderr?.destroy()
    expect((await ended).code).toBe(0)
  })

  it('lets no control code of a package reach the terminal', async () => {
    const dir = auditedTree({
      'a\x1b[2J/package.json': { name: 'a\x1b]0;title\x07', version: '1\r2', license: 'MIT\n\x9b31m' },
      'b\x1b[8m/index.js': '',
    })
    const { out, err } = await startDemo('--dir', dir).ended
    expect(out).toContain('a\\x1b]0;title\\x07@1\\x0d2')
    expect(out).toContain('MIT\\x0a\\x9b31m')
    expect(out).toContain('b\\x1b[8m  UnreadablePackageError: ENOENT')
    expect((out + err).replaceAll('\n', '')).not.toMatch(/\p{Cc}/u)
  })

  it.each([
    [['--lanes', '0'], '--lanes must be a whole number from 1 to 1000, not 0'],
    [['--dir', '/no/such/folder'], '--dir: /no/such/folder is not a folder'],
    [['--speed', '9'], "Unknown option '--speed'"],
  ])('refuses %j', async (args, message) => {
    const { code, out, err } = await startDemo(...args).ended
    expect(err).toContain(`${message}\nusage: npm run demo`)
    expect(out).toBe('')
    expect(code).toBe(2)
  })
})
