import { describe, expect, it } from 'vitest'
import { cpuUsOf, infoOf, numberIn } from '../../../bench/redis/info.js'

const TEXT = [
  '# Memory',
  'used_memory:1048576',
  'maxmemory_policy:noeviction',
  '',
  '# CPU',
  'used_cpu_sys_main_thread:0.25',
  'used_cpu_user_main_thread:1.5',
  'executable:/usr/bin/a:b',
  '',
].join('\r\n')

describe('infoOf', () => {
  it('finds each line by its name, whatever its value holds', () => {
    expect(infoOf(TEXT).get('maxmemory_policy')).toBe('noeviction')
    expect(infoOf(TEXT).get('executable')).toBe('/usr/bin/a:b')
  })

  it('leaves out titles and gaps', () => {
    expect(infoOf(TEXT).size).toBe(5)
  })
})

describe('numberIn', () => {
  it('reads a number', () => {
    expect(numberIn(infoOf(TEXT), 'used_memory')).toBe(1_048_576)
  })

  it('refuses what is missing or no number, so that no bench reports it', () => {
    expect(() => numberIn(infoOf(TEXT), 'used_memory_rss')).toThrow('no number used_memory_rss')
    expect(() => numberIn(infoOf(TEXT), 'maxmemory_policy')).toThrow('no number')
  })
})

it('cpuUsOf adds what the thread spent on its own and in the system', () => {
  expect(cpuUsOf(infoOf(TEXT))).toBe(1_750_000)
})
