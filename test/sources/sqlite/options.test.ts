/** What is refused before the file is touched. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { InvalidOptionError } from 'millrace'
import { sqliteBackend } from 'millrace/sqlite'
import { describe, expect, it } from 'vitest'
import { connect, freshFolder, freshPath } from './rig.js'

function refusal(database: unknown, options?: unknown): unknown {
  try {
    sqliteBackend(database as string, options as object)
    return undefined
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidOptionError)
    const { field, value } = error as InvalidOptionError
    return { field, value }
  }
}

describe('bad options', () => {
  it.each([
    ['durability', 'x'],
    ['durability', 'FULL'],
    ['durability', 1],
    ['durability', null],
    ['busyTimeoutMs', -1],
    ['busyTimeoutMs', Number.NaN],
    ['busyTimeoutMs', Number.POSITIVE_INFINITY],
    ['busyTimeoutMs', '5'],
    ['busyTimeoutMs', null],
    ['busyTimeout', 5],
    ['toString', 5],
    ['readonly', true],
  ])('S10 %s: %s is refused, and no file is made', (name, value) => {
    const path = freshPath()
    expect(refusal(path, { [name]: value })).toEqual({ field: `sqliteBackend.${name}`, value })
    expect(existsSync(path)).toBe(false)
  })

  it.each([[5], ['durability'], [[]], [null]])('S10 options that are none are refused: %j', (options) => {
    expect(refusal(freshPath(), options)).toEqual({ field: 'sqliteBackend', value: options })
  })

  it.each([
    [undefined],
    [null],
    [''],
    ['a\0b'],
    [5],
    [{}],
    [['a.db']],
    [Buffer.from('a.db')],
    [new URL('file:///a.db')],
  ])('S10 a database that is none is refused: %j', (database) => {
    expect(refusal(database)).toEqual({ field: 'database', value: database })
  })

  it('S10 a database that its owner has closed is refused', () => {
    const database = connect(freshPath())
    database.close()
    expect(refusal(database)).toEqual({ field: 'database', value: database })
  })

  it('S10 good ones make no file either, before the first use', async () => {
    const path = join(freshFolder(), 'a.db')
    await sqliteBackend(path, { durability: 'full', busyTimeoutMs: 0 }).close()
    await sqliteBackend(path, {}).close()
    expect(existsSync(path)).toBe(false)
  })
})
