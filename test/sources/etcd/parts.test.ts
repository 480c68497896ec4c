/** Parts of the etcd backend that need no server. */
import { StoreVersionError } from 'millrace'
import { describe, expect, it } from 'vitest'
import type { Op } from '../../../src/sources/etcd/client.js'
import { asBackendError, isLeaseGone, isOutOfSpace } from '../../../src/sources/etcd/errors.js'
import { endOf, keysOf } from '../../../src/sources/etcd/keys.js'
import { Lane, type Work } from '../../../src/sources/etcd/lane.js'
import { Members } from '../../../src/sources/etcd/members.js'
import { leaseFor } from '../../../src/sources/etcd/page.js'
import { decode, decodeWithBytes, encode, encodeWithBytes } from '../../../src/sources/etcd/record.js'
import { deadlineFor } from '../../../src/sources/etcd/session.js'
import { SessionRecord, sumOf } from '../../../src/sources/etcd/session-record.js'
import { SlewedClock } from '../../../src/sources/etcd/time.js'
import { TokenBook } from '../../../src/sources/etcd/tokens.js'
import { bytesOf, packed, put } from '../../../src/sources/etcd/txn.js'
import { DueWindow, ReadyWindow } from '../../../src/sources/etcd/windows.js'

const puts = (count: number): Op[] => Array.from({ length: count }, (_, n) => put(`k${n}`, Buffer.from('v')))

function leaves(ops: readonly Op[]): number {
  return ops.reduce((sum, op) => sum + (op.kind === 'txn' ? leaves(op.txn.success) : 1), 0)
}

function width(ops: readonly Op[]): number {
  return ops.length + Math.max(0, ...ops.map((op) => (op.kind === 'txn' ? width(op.txn.success) : 0)))
}

describe('operations', () => {
  it.each([0, 1, 14, 15, 100, 500, 1_500])('E1 %d of them stay within the limit on every path', (count) => {
    for (const most of [14, 40, 103]) {
      const ops = packed(puts(count), most)
      expect(leaves(ops)).toBe(count)
      expect(ops.length).toBeLessThanOrEqual(most)
      expect(width(ops)).toBeLessThanOrEqual(most + Math.ceil(count / most))
    }
  })

  it('E2 are reckoned with their keys and values', () => {
    const txn = { compare: [], success: [put('key', Buffer.alloc(1_000))], failure: [] }
    expect(bytesOf(txn)).toBeGreaterThanOrEqual(1_003)
    expect(bytesOf(txn)).toBeLessThan(1_100)
  })
})

describe('keys', () => {
  it('of a queue end where those of the next begin', () => {
    const { ready } = keysOf('q')
    expect(endOf(ready) > `${ready}\uffff`).toBe(true)
    expect(keysOf('q/r').ready.startsWith(keysOf('q').root)).toBe(false)
  })
})

describe('records', () => {
  it('N74 keep bytes as they are', () => {
    const bytes = Buffer.from([0, 255, 10, 0])
    expect(decodeWithBytes(encodeWithBytes({ a: 'ü' }, bytes), 'x')).toEqual({ value: { a: 'ü' }, bytes })
    expect(decodeWithBytes(encodeWithBytes({}, Buffer.alloc(0)), 'x').bytes.length).toBe(0)
  })

  it('N88 of a newer form are refused by name, others that cannot be read too', () => {
    expect(decode(encode([1]), 'x')).toEqual([1])
    expect(() => decode(Buffer.from('2[1]'), 'x')).toThrow(StoreVersionError)
    expect(() => decodeWithBytes(Buffer.from('2abcdef'), 'x')).toThrow(StoreVersionError)
    for (const bad of ['', '1', '1{', '\u00001']) expect(() => decode(Buffer.from(bad), 'x')).toThrow(/cannot be read/)
    expect(() => decodeWithBytes(Buffer.from('1\u0000\u0000\u0000\u0009{}'), 'x')).toThrow(/cannot be read/)
  })
})

describe('a session record', () => {
  it('tells which claims of a page are live, until the last is settled', () => {
    const record = SessionRecord.empty().draft('itself')
    record.pages.set(1, { lease: 'l', size: 3, settled: 0n, cancelled: 0n })
    record.requestCancel(1, 2)
    expect(record.settle(1, 1)).toBe(false)
    const again = SessionRecord.decode(record.encode())
    expect([again.turn, again.liveIn(1), again.isCancelRequested(1, 2)]).toEqual([1, [0, 2], true])
    expect([again.settle(1, 0), again.settle(1, 2)]).toEqual([false, true])
    expect([again.holdsClaims, again.isLive(1, 0), again.settle(1, 0)]).toEqual([false, false, false])
  })

  it('changes nothing of what it is a draft of, and counts', () => {
    const before = SessionRecord.empty(7)
    before.pages.set(1, { lease: 'l', size: 2, settled: 0n, cancelled: 0n })
    const draft = before.draft('another')
    draft.count('acked', 3)
    draft.settle(1, 0)
    expect([draft.turn, before.counts.acked, before.liveIn(1)]).toEqual([7, 0, [0, 1]])
    expect(sumOf([before, draft, draft]).acked).toBe(6)
  })
})

describe('leases', () => {
  it.each([
    [1, 2_000],
    [2_000, 2_000],
    [2_001, 3_000],
    [30_000, 30_000],
  ])('of %d ms are %d ms', (asked, granted) => expect(leaseFor(asked)).toBe(granted))
})

describe('time', () => {
  it('N34 does not jump with the wall clock, and follows one that drifts', () => {
    let [monotonic, wall] = [0, 1_000_000]
    const clock = new SlewedClock(
      () => monotonic,
      () => wall,
    )
    const pass = (ms: number, drift = 0) => {
      monotonic += ms
      wall += ms + drift
    }
    pass(1_000)
    expect(clock.now()).toBe(1_001_000)
    wall -= 3_600_000
    pass(1_000)
    expect(clock.now()).toBeGreaterThanOrEqual(1_001_998)
    wall += 3_600_000
    pass(100_000, 50)
    expect(Math.abs(clock.now() - wall)).toBeLessThanOrEqual(2)
  })
})

describe('members', () => {
  it('E16 one that did not answer is left alone, and what is open to it ends', () => {
    const members = new Members(['a', 'b', 'c'])
    const first = members.current
    const ended: Error[] = []
    first.open.add((error) => ended.push(error))
    const error = new Error('silent')
    members.suspect(first, error)
    expect(ended).toEqual([error])
    const second = members.current
    expect(second).not.toBe(first)
    members.suspect(second, error)
    expect([first, second]).not.toContain(members.current)
    members.suspect(members.current, error)
    // All are suspected: the one that was first to be is asked again.
    expect(members.current).toBe(first)
  })

  it('one that is alone is asked all the same', () => {
    const members = new Members(['a'])
    members.suspect(members.current, new Error('silent'))
    expect(members.current.suspectUntil).toBe(0)
  })

  it('are each given a short time, and a longer one when all have been asked', () => {
    expect([0, 1, 2, 3, 6].map((attempt) => deadlineFor(attempt, 3))).toEqual([500, 500, 500, 1_000, 2_000])
    expect([0, 1, 2, 9].map((attempt) => deadlineFor(attempt, 1))).toEqual([1_000, 2_000, 4_000, 8_000])
  })
})

describe('errors', () => {
  it.each([
    ['14 UNAVAILABLE: etcdserver: leader changed', 'ERR_MILLRACE_BACKEND_UNAVAILABLE'],
    ['4 DEADLINE_EXCEEDED: no answer within 500 ms', 'ERR_MILLRACE_BACKEND_UNAVAILABLE'],
    ['14 UNAVAILABLE: etcdserver: no leader', 'ERR_MILLRACE_BACKEND_UNAVAILABLE'],
    ['8 RESOURCE_EXHAUSTED: etcdserver: too many requests', 'ERR_MILLRACE_BACKEND_UNAVAILABLE'],
    ['8 RESOURCE_EXHAUSTED: etcdserver: mvcc: database space exceeded', 'ERR_MILLRACE_BACKEND'],
    ['3 INVALID_ARGUMENT: etcdserver: too many operations in txn request', 'ERR_MILLRACE_BACKEND'],
    ['7 PERMISSION_DENIED: etcdserver: permission denied', 'ERR_MILLRACE_BACKEND'],
  ])('%s is %s', (message, code) => {
    const error = asBackendError(Object.assign(new Error(message), { metadata: 'secret' }))
    expect(error.code).toBe(code)
    expect(JSON.stringify(error.cause)).not.toContain('secret')
    expect(asBackendError(error)).toBe(error)
  })

  it('E7, E21 that matter by themselves are told apart', () => {
    expect(isLeaseGone(asBackendError(new Error('5 NOT_FOUND: etcdserver: requested lease not found')))).toBe(true)
    expect(isOutOfSpace(asBackendError(new Error('etcdserver: mvcc: database space exceeded')))).toBe(true)
    expect(isOutOfSpace(new Error('no space'))).toBe(false)
  })
})

describe('windows', () => {
  it('E5 of ready messages are whole while those are few, and end near when they are many', () => {
    const window = new ReadyWindow('q/r/')
    window.note(200, 16, 'q/r/000000005000000000000640000')
    expect([window.isWhole, window.end]).toEqual([true, 'q/r0'])
    const seen = 'q/r/00000000500000000000064000'
    window.note(100_000, 16, seen)
    expect(window.isWhole).toBe(false)
    expect(window.end > seen && window.end < 'q/r/00000000500000000000100').toBe(true)
    window.widen()
    expect(window.isWhole).toBe(true)
  })

  it('E5 of ready messages begin at the first, until something is put in front, or all has to be looked at again', () => {
    const prefix = 'q/r/'
    const window = new ReadyWindow(prefix)
    expect([window.start, window.isSure(prefix, 9)]).toEqual([prefix, true])
    window.noteStart(prefix, { first: 'q/r/b', last: 'q/r/d', complete: false }, 10)
    expect([window.start, window.isSure('q/r/b', 10), window.isSure('q/r/b', 11)]).toEqual(['q/r/b', true, false])
    // Nothing was there as far as the look went, or at all.
    window.noteStart('q/r/b', { first: undefined, last: undefined, complete: false }, 20)
    expect(window.start).toBe('q/r/b')
    window.noteStart('q/r/b', { first: undefined, last: undefined, complete: true }, 30)
    expect([window.start, window.isSure('q/r/d', 30)]).toEqual(['q/r/d', true])
    window.reached('q/r/c')
    window.reached('q/r/e')
    window.noteStart('q/r/d', { first: undefined, last: undefined, complete: true }, 40)
    expect(window.start).toBe('q/r/e')
    window.forgetStart()
    const starts: string[] = []
    for (let look = 50; look < 56; look += 1) {
      starts.push(window.start)
      window.noteStart(window.start, { first: 'q/r/a', last: 'q/r/a', complete: true }, look)
    }
    expect(starts).toEqual([prefix, prefix, prefix, prefix, 'q/r/a', 'q/r/a'])
    window.reset()
    window.noteStart(prefix, { first: undefined, last: undefined, complete: true }, 5)
    expect([window.start, window.isSure(prefix, 6)]).toEqual([prefix, true])
  })

  it('F10 of what is due reach as far as the first, where it is many', () => {
    const window = new DueWindow('q/d/')
    expect([window.note(0, 0), window.end]).toEqual([0, 'q/d0'])
    const due = Date.now() + 86_400_000
    expect(window.note(100_000, due)).toBe(due)
    expect(window.end < 'q/d0').toBe(true)
    // Nothing found within it says that nothing is due for so long.
    expect(window.note(0, 0)).toBeGreaterThanOrEqual(due)
  })
})

describe('a lane', () => {
  it('takes a burst of any size', async () => {
    const most: number[] = []
    const work: Work = async (jobs) => {
      most.push(jobs.length)
      for (const { asked } of jobs) asked.succeed(undefined)
    }
    const lane = new Lane(
      { burst: work },
      { burst: { takes: ['burst'], most: 1_000, until: () => false } },
      new TokenBook(),
    )
    const asked = Array.from({ length: 200_000 }, (_, index) => lane.ask('burst', index))
    await Promise.all(asked)
    expect(new Set(most)).toEqual(new Set([1_000]))
  })
})
