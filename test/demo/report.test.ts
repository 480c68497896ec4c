import { describe, expect, it } from 'vitest'
import { printable, printableLines } from '../../demo/printable.js'
import { report, resumedLine } from '../../demo/report.js'

const audit = { name: 'a', version: '1.0.0', licence: 'MIT', files: 2, bytes: 1_500, ms: 3 }

describe('the report', () => {
  it('escapes what packages say of themselves, and keeps its columns', () => {
    const [licences] = report([{ ...audit, licence: 'M\x1b[31mIT' }, audit], [], 2).split('\n\n')
    expect(licences).toBe('Licences\n  M\\x1b[31mIT  1\n  MIT          1')
  })

  it('tells of packages that were audited and are not installed any more', () => {
    expect(report([audit], [], 3)).toMatch(/Total\n {2}packages {11}1\n {2}uninstalled since {2}2\n/)
    expect(report([audit], [], 1)).not.toContain('uninstalled')
  })

  it('counts dead letters of an earlier run as done', () => {
    expect(resumedLine({ found: 9, audited: 4, refused: 2, left: 3 })).toBe('resumed: 6 of 9 packages were done before')
  })
})

describe('printable', () => {
  it.each([
    ['plain @scope/näme 漢字 😀', 'plain @scope/näme 漢字 😀'],
    ['\x1b]0;title\x07', '\\x1b]0;title\\x07'],
    ['a\r\nb\tc\x7f', 'a\\x0d\\x0ab\\x09c\\x7f'],
    ['\x9b2J', '\\x9b2J'],
    ['gnp.\u202etxt\u2028', 'gnp.\\u{202e}txt\\u{2028}'],
    ['\ud800', '\\u{d800}'],
    ['C:\\x', 'C:\\x'],
  ])('shows %j as %j', (text, shown) => {
    expect(printable(text)).toBe(shown)
  })

  it('leaves lines where they are asked for', () => {
    expect(printableLines('a\x1b\nb')).toBe('a\\x1b\nb')
  })
})
