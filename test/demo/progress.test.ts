import { describe, expect, it } from 'vitest'
import { showProgress } from '../../demo/progress.js'

function screen(isTTY: boolean) {
  const written: string[] = []
  return { isTTY, columns: 40, written, write: (text: string) => written.push(text) }
}

describe('showProgress', () => {
  it('writes a line for each tenth where there is no terminal', () => {
    const plain = screen(false)
    const progress = showProgress(plain, 10, 40)
    for (let step = 0; step < 30; step += 1) progress.step()
    progress.end()
    expect(plain.written).toHaveLength(8)
    expect(plain.written[0]).toBe('12 of 40 packages\n')
    expect(plain.written.at(-1)).toBe('40 of 40 packages\n')
  })

  it('draws a bar on a terminal, and ends below it', () => {
    const terminal = screen(true)
    const progress = showProgress(terminal, 0, 4)
    for (let step = 0; step < 3; step += 1) progress.step()
    progress.end()
    expect(terminal.written[0]).toBe(`\r[${'.'.repeat(20)}] 0/4\x1b[K`)
    expect(terminal.written.slice(-2)).toEqual([`\r[${'#'.repeat(15)}${'.'.repeat(5)}] 3/4\x1b[K`, '\n'])
  })

  it.each([
    [0, 50],
    [10, 0],
    [200, 50],
  ])('fits a terminal of %d columns', (columns, width) => {
    const terminal = { ...screen(true), columns }
    showProgress(terminal, 0, 4).end()
    expect(terminal.written[0]).toBe(`\r[${'.'.repeat(width)}] 0/4\x1b[K`)
  })

  it('is content with nothing to do', () => {
    const terminal = screen(true)
    showProgress(terminal, 0, 0).end()
    expect(terminal.written.at(-2)).toContain(`[${'#'.repeat(20)}] 0/0`)
  })
})
